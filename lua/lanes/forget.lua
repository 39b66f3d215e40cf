-- Forgets waiting or granted jobs that will not arrive.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] for each job:
--   name    "<queue>\n<ID>"
--   record  the job's record, or its first lines. A job with another record is not forgotten,
--           because it has begun another wait
-- Returns the number of forgotten jobs with a well-formed record
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
    forget_record(name, HAS_DEADLINE) -- malformed record: a turn of the lane removes the job itself
  end
end
return known
