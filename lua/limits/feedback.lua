-- Records that the upstream accepted a call, or that the upstream was overloaded. An accepted call
-- sets its keys' counts of consecutive 429s to 0, and adapting keys speed up. An overload slows
-- adapting keys down as a 429 does, but blocks no key.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] time at which the limiter allowed the call, Unix microseconds
-- ARGV[2] latency of the upstream, microseconds; -1 if the upstream was overloaded
-- ARGV[3…] limit, key of each meter
-- Returns the number of meters whose records this call wrote
-- @include adapt
local at_us, latency_us = tonumber(ARGV[1]), tonumber(ARGV[2])

-- Records an accepted call. A call that was allowed before the last 429 does not reset the count.
local function accepted(name, key)
  drop_ended(name)
  local r = read_record(name, key)
  local previous = r.rate_limited
  if at_us > r.rate_limited_us then r.rate_limited = 0 end
  if r.rate_limited < previous then end_row(name, key) end
  local min_share, target_latency_us = adaptive_settings(name)
  if not min_share or r.allowed_share == FULL and r.share == FULL and target_latency_us == 0 then
    if r.rate_limited == previous then return 0 end
    store_record(name, key, r)
    drop_if_empty(name, key, r)
    return 1
  end
  if at_us > r.slowed_us then speed_up(r) else r.feedback_us = now_us end
  if target_latency_us > 0 then r.latency_us = math.max(latency_us, floor((r.latency_us + latency_us) / 2)) end
  adapt(name, key, r, min_share, target_latency_us)
  return 1
end

-- Slows an adapting key down. A call that was allowed before the last 429 has no effect.
local function overloaded(name, key)
  drop_ended(name)
  local min_share, target_latency_us = adaptive_settings(name)
  local r = read_record(name, key)
  if not min_share or at_us <= r.rate_limited_us then return 0 end
  slow_down(name, key, r, min_share, target_latency_us)
  return 1
end

local apply = latency_us < 0 and overloaded or accepted
local changed = 0
for i = 3, #ARGV, 2 do changed = changed + apply(ARGV[i], ARGV[i + 1]) end
return changed
