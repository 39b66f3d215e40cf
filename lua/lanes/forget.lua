-- Forgets waiting or granted jobs that will not come. If a record cannot be read the rest of the
-- job goes when its turn comes. A job that waits anew by now is left alone.
-- Touches: changes (w), deadlines (w), demand (w), full (w), granted (rw), jobs (rw), lane (rw),
--   lanes (rw), meters (w), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue, ID and record of each job, or as much of the record as says which wait is meant
-- Returns how many were known
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
