-- Forgets waiting or called jobs that will not come; what they leave goes on. Of one
-- whose record cannot be read the rest goes when its turn comes.
-- Touches: called (rw), changes (w), demand (w), full (w), jobs (rw),
--   lane (rw), lanes (rw), meters (w), patience (w), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue, ID of each job
-- Returns how many were known
-- @include lanes
local known = 0
for i = 1, #ARGV, 2 do
  local r = read_job(ARGV[i], ARGV[i + 1])
  if r then
    forget_job(ARGV[i], ARGV[i + 1], r)
    known = known + 1
  else
    forget_record(ARGV[i] .. '\n' .. ARGV[i + 1], '1')
  end
end
return known
