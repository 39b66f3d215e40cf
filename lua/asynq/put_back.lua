-- Puts active jobs of a queue back into asynq's retry set, on their last attempt too.
-- KEYS[1] asynq:{queue}:active
-- KEYS[2] asynq:{queue}:lease
-- KEYS[3] asynq:{queue}:retry
-- KEYS[4…] asynq:{queue}:t:{id}, each job's hash
-- ARGV[1…] for each job: its ID; its message, which says why; unix second at which asynq
--   itself brings it back; seconds that its Unique lock must hold for, 0 if it has none;
--   scope in which it was denied, so that promote and postpone may move it, or empty; the
--   lease that it must have, see is_lease: name of its dequeue, and unix second by which it
--   has ended, or empty
-- Returns 1 for each job, also if this very call has put it back before; 0 if it is not
--   active, or under another lease
-- @include put_back
local active, lease, retry = KEYS[1], KEYS[2], KEYS[3]

-- Reports whether a job was put back under that lease, and has not been moved since.
local function is_back(hash, name)
  local by, state = unpack(redis.call('HMGET', hash, 'pending_since', 'state'))
  return by and by == name and state == 'retry'
end

local done, fresh, ids, due = {}, {}, {}, {}
for i = 1, #ARGV, 7 do
  local id, name, hash = ARGV[i], ARGV[i + 5], KEYS[3 + (i + 6) / 7]
  local is = take_back(active, lease, hash, id, name, ARGV[i + 6])
  if is then ids[#ids + 1], due[#due + 1], due[#due + 2] = id, ARGV[i + 2], id end
  fresh[#fresh + 1], done[#done + 1] = is, (is or is_back(hash, name)) and 1 or 0
end
if ids[1] then into_retry(lease, retry, ids, due) end
for n = 1, #done do
  local i = 7 * n - 6
  if fresh[n] then put_back(KEYS[3 + n], ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]) end
end
return done
