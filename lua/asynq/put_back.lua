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

local done, ids, due = {}, {}, {}
for i = 1, #ARGV, 6 do
  local id, ends = ARGV[i], ARGV[i + 5]
  local is = take_back(active, lease, id, ends ~= '' and ends)
  if is then ids[#ids + 1], due[#due + 1], due[#due + 2] = id, ARGV[i + 2], id end
  done[#done + 1] = is and 1 or 0
end
if ids[1] then into_retry(lease, retry, ids, due) end
for n = 1, #done do
  local i = 6 * n - 5
  if done[n] == 1 then put_back(KEYS[3 + n], ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]) end
end
return done
