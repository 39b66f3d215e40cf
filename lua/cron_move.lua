-- Moves what is known of a schedule on, unless somebody else was faster. Of all
-- that saw the same state one wins; that is what makes a tick happen once.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] schedule
-- ARGV[2] last, as the caller saw it; empty for none
-- ARGV[3] intent, as the caller saw it; empty for none
-- ARGV[4] seconds after which to forget the schedule, 0 to keep it
-- ARGV[5…] field, value for each that changes; an empty value removes it
-- Touches: cron:<schedule> rw
-- Returns 1, or 0 if last or intent are not what the caller saw
local state = KEYS[1] .. 'cron:' .. ARGV[1]
local last, intent = ARGV[2], ARGV[3]
local forget_s = ARGV[4]
local call = redis.call

if (call('HGET', state, 'last') or '') ~= last then return 0 end
if (call('HGET', state, 'intent') or '') ~= intent then return 0 end
for i = 5, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then call('HDEL', state, field) else call('HSET', state, field, value) end
end
if forget_s ~= '0' then call('EXPIRE', state, forget_s) else call('PERSIST', state) end
return 1
