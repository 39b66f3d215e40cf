-- Reads the states of schedules, and Redis's clock.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] names of schedules
-- Returns Redis's clock in Unix microseconds, then for each schedule the reply of HGETALL, which is
--   empty for an unknown schedule
-- @include scope

local reply = { int(now_us) }
for i = 1, #ARGV do reply[i + 1] = call('HGETALL', hg('cron', ARGV[i])) end
return reply
