-- Forgets waiting or called jobs that will not come; what they leave goes on.
-- Touches: at (rw), blocked (r), demand (w), due (rw), grants (w), jobs (rw),
--   limbo (w), limit (r), m (rw), q (rw), reserved (w), wake (w).
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
  end
end
return known
