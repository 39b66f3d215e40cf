-- Puts active jobs of a queue back into asynq's retry set, on their last attempt too.
-- KEYS[1] asynq:{queue}:active
-- KEYS[2] asynq:{queue}:lease
-- KEYS[3] asynq:{queue}:retry
-- KEYS[4…] asynq:{queue}:t:{id}, each job's hash
-- ARGV[1…] for each job: its ID; its message, which says why; unix second at which asynq
--   itself brings it back; seconds that its Unique lock must hold for, 0 if it has none;
--   scope in which it was denied, so that promote and postpone may move it, or empty;
--   unix second at which its lease must end still, or empty for whenever
-- Returns 1 for each job; 0 if it is not active, or its lease was extended
-- @include put_back
local active, lease, retry = KEYS[1], KEYS[2], KEYS[3]

local done = {}
for i = 1, #ARGV, 6 do
  local n = #done + 1
  local job = { hash = KEYS[3 + n], active = active, lease = lease, retry = retry, id = ARGV[i], ends = ARGV[i + 5] ~= '' and ARGV[i + 5] }
  done[n] = put_back(job, ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]) and 1 or 0
end
return done
