-- @include scope

-- When a job's time is up that waits since a moment. From then on it is neither
-- called nor let by, but told that it is too late.
local function latest(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end
