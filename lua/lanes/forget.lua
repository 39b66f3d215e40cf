-- Removes waiting and granted jobs that asynq no longer has. If a record is malformed, only the
-- record is deleted: the job leaves its lane when its turn comes. A job that has begun another wait
-- meanwhile is not removed.
-- Touches: changes (w), deadlines (w), demand (w), full (w), granted (rw), jobs (rw), lane (rw),
--   lanes (rw), meters (w), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue, ID of each job, and its record or the first bytes of it, which identify the wait
-- Returns the number of removed jobs
-- @include lanes
local removed = 0
for i = 1, #ARGV, 3 do
  local queue, id, wait = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
  local matches = record and string.sub(record, 1, #wait) == wait
  local r = matches and parse_job(record)
  if r then
    forget_job(queue, id, r)
    removed = removed + 1
  elseif matches then
    forget_record(queue .. '\n' .. id, HAS_DEADLINE)
  end
end
return removed
