-- Puts an active job back into asynq's retry set, on its last attempt too.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:retry
-- ARGV[1] id
-- ARGV[2] its message, which says why
-- ARGV[3] unix second at which asynq itself brings it back
-- ARGV[4] seconds that its Unique lock must hold for; 0 if it has none
-- ARGV[5] scope in which it was denied: promote and postpone may then move it; or
--   empty
-- ARGV[6] unix second at which its lease must end still; none for whenever
-- Returns OK, or asynq's error NOT FOUND if the job is not active, or its lease was
--   extended
-- @include put_back
local job = { hash = KEYS[1], active = KEYS[2], lease = KEYS[3], retry = KEYS[4], id = ARGV[1], ends = ARGV[6] }
local msg, at, seconds, scope = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]

if not put_back(job, msg, at, seconds, scope) then return redis.error_reply('NOT FOUND') end
return redis.status_reply('OK')
