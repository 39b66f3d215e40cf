-- Forgets waiting or called jobs that will not come; what they leave goes on.
-- Touches: at (rw), demand (w), due (rw), grants (w), jobs (rw), limbo (w),
--   limit (r), m (rw), q (rw), reserved (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] jobs
-- Returns how many were known
-- @include lanes
local known = 0
for i = 1, #ARGV do
  local r = read_job(ARGV[i])
  if r then
    forget_job(ARGV[i], r)
    known = known + 1
  end
end
return known
