-- Forgets waiting or granted jobs that will not arrive.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] for each job:
--   name    "<queue>\n<ID>"
--   record  its record, or the first lines of it; a job with another record began another wait
-- Returns the number of jobs that had this record
-- @include lanes
local known = 0
for i = 1, #ARGV, 2 do
  local name, start = ARGV[i], ARGV[i + 1]
  local record = call('HGET', hg('jobs'), name)
  local same = record and string.sub(record, 1, #start) == start
  local r = same and parse_job(record)
  if r then
    local queue, id = string.match(name, '^([^\n]*)\n(.*)$')
    forget_job(queue, id, r)
    known = known + 1
  elseif same then
    forget_record(name, HAS_DEADLINE) -- its turn removes the rest of the job
  end
end
return known
