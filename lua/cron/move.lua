-- Moves what is known of a schedule on, unless somebody else was faster. Of all
-- that saw the same state one wins; that is what makes a tick happen once.
-- Touches: cron (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] schedule
-- ARGV[2] last, as the caller saw it; empty for none
-- ARGV[3] intent, as the caller saw it; empty for none
-- ARGV[4] seconds after which to forget the schedule unless it is paused, 0 to keep it
-- ARGV[5…] field, value for each that changes; an empty value removes it
-- Returns 1, or 0 if last or intent are not what the caller saw
-- @include scope
local name, last, intent, forget_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local schedule = hg('cron', name)

if (call('HGET', schedule, 'last') or '') ~= last then return 0 end
if (call('HGET', schedule, 'intent') or '') ~= intent then return 0 end
for i = 5, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then call('HDEL', schedule, field) else call('HSET', schedule, field, value) end
end
if forget_s ~= '0' and call('HEXISTS', schedule, 'paused') == 0 then
  call('EXPIRE', schedule, forget_s)
else
  call('PERSIST', schedule)
end
return 1
