-- @include adapt
-- @include blocked

-- If the upstream gives no Retry-After, a block lasts FIRST_US, doubled with each consecutive rate
-- limit up to LONGEST_US. The actual duration is random between half of this time and all of it.
local FIRST_US, LONGEST_US = 1000000, 300000000

-- Records that the upstream rate limited a call which was allowed at at_us, and blocks the call's
-- meter for for_us, or for a computed time if for_us is -1. A call that was allowed before the
-- meter's last rate limit does not count as another rate limit, and needs no computed block.
local function record_rate_limit(name, key, at_us, for_us, random)
  drop_ended(name)
  local r = read_record(name, key)
  local is_known = at_us <= r.rate_limited_us
  if for_us >= 0 then
    block_longer(name, key, now_us + for_us)
  elseif not is_known then
    local us = math.min(FIRST_US * 2 ^ math.min(r.rate_limited, 30), LONGEST_US)
    block_longer(name, key, now_us + floor(us / 2 + us / 2 * random / 1000000))
  end
  if is_known then store_record(name, key, r) else slow_down(name, key, r, adaptive_settings(name)) end
  publish_change('meter', name .. '|' .. key)
end
