-- @include record

-- A limit that adapts slows single keys down, and speeds them up again to at most the limit's rate.
--
-- Rate limits: additive increase and multiplicative decrease (Chiu and Jain, "Analysis of the
-- increase and decrease algorithms for congestion avoidance", 1989). A 429 of the upstream halves
-- the key's rate if the key had the full rate, or if the previous call got a 429, too. A 429 at a
-- lower rate, after an accepted call, takes a tenth of the rate: the key was only a little too
-- fast. While the upstream accepts calls, the key gains a thousandth of the full rate each second.
--
-- Latency: the rule of Scrapy's AutoThrottle. The key's share of the full rate is the wanted
-- latency divided by the measured latency. A higher latency counts in full, a lower latency by
-- half.
local GAIN_US = 1000 -- microseconds in which the share grows by a millionth
local LONGEST_GAP_US = 10000000 -- the longest time between two calls that raises the share
-- A key's share changes only by at least this part of the share, because each change of a rate
-- rounds the permits in use up to whole ones.
local MIN_CHANGE = 0.02

-- Returns the smallest share of the rate in millionths, and the wanted latency in microseconds or 0
-- for none. Returns nil if the limit does not adapt.
local function adaptive_settings(name)
  local min_share, latency_us = unpack(call('HMGET', hg('limit', name), 'adapt_share', 'adapt_latency_us'))
  min_share = tonumber(min_share or nil)
  if min_share then return min_share, tonumber(latency_us or nil) or 0 end
end

-- Raises the share for the time since the last feedback or slow-down. The rest of that time, too
-- short for a millionth of the share, counts at the next call of speed_up.
local function speed_up(r)
  local us = math.max(now_us - math.max(r.feedback_us, r.slowed_us), 0)
  r.allowed_share = math.min(FULL, r.allowed_share + floor(math.min(us, LONGEST_GAP_US) / GAIN_US))
  r.feedback_us = now_us - us % GAIN_US
end

-- Stores the record, and gives the key the share that 429s and latency allow, if it differs enough.
local function adapt(name, key, r, min_share, target_latency_us)
  r.allowed_share = math.max(r.allowed_share, min_share)
  local share = r.allowed_share
  if target_latency_us > 0 and r.latency_us > target_latency_us then share = math.min(share, math.max(min_share, floor(FULL * target_latency_us / r.latency_us))) end
  if share ~= r.share and (share == FULL or math.abs(share - r.share) >= MIN_CHANGE * r.share) then
    r.share = share
    change_rate(name, key, r)
  else
    store_record(name, key, r)
  end
end

-- Records that the upstream answered a call with 429 or was overloaded. If the limit adapts
-- (min_share is not nil), the key slows down.
local function slow_down(name, key, r, min_share, target_latency_us)
  r.rate_limited, r.rate_limited_us = r.rate_limited + 1, now_us
  if not min_share then return store_record(name, key, r) end
  local halve = r.allowed_share == FULL or r.rate_limited > 1
  r.allowed_share, r.slowed_us = floor(math.min(r.allowed_share, r.share) * (halve and 0.5 or 0.9)), now_us
  adapt(name, key, r, min_share, target_latency_us)
end
