-- Forgets waiting or granted jobs that will not arrive.
-- Touches: changes (w), deadlines (w), demand (w), full (w), granted (rw), jobs (rw), lane (rw),
--   lanes (rw), meters (w), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] name of each job: "<queue>\n<ID>"
-- Returns the number of jobs that had a record
-- @include lanes
local known = 0
for i = 1, #ARGV do
  local record = call('HGET', hg('jobs'), ARGV[i])
  local queue, id = string.match(ARGV[i], '^([^\n]*)\n(.*)$')
  local r = record and parse_job(record)
  if r then
    forget_job(queue, id, r)
    known = known + 1
  elseif record then
    forget_record(ARGV[i], ENDS) -- its turn removes the rest of the job
  end
end
return known
