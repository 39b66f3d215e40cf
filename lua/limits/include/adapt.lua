-- @include record

-- A limit that adapts slows single keys down and speeds them up again, up to the limit's rate.
--
-- Rate limits: additive increase and multiplicative decrease (Chiu and Jain, "Analysis of the
-- increase and decrease algorithms for congestion avoidance", 1989). If the upstream rate limits a
-- call, the key's rate is halved if it was the full rate, or if the previous call was rate limited,
-- too. Otherwise the key was only a little too fast while it sped up, so it loses a tenth. While
-- calls are accepted, the key gains a thousandth of the full rate each second.
--
-- Latency: the rule of Scrapy's AutoThrottle. The rate is what keeps the upstream at the wanted
-- latency. A key slows down at once, and speeds up in steps of half the difference.
local GAIN_US = 1000 -- time in which the share grows by a millionth
local LONGEST_GAP_US = 10000000 -- a longer time between two calls counts as this
-- A share that differs by less than this part is not applied yet, because each change of a rate
-- rounds the permits in use up to whole ones.
local MIN_CHANGE = 0.02

-- Returns the smallest share of the rate, and the wanted latency or 0; nil if the limit does not
-- adapt.
local function adaptive_settings(name)
  local min_share, latency_us = unpack(call('HMGET', hg('limit', name), 'adapt_share', 'adapt_latency_us'))
  min_share = tonumber(min_share or nil)
  if min_share then return min_share, tonumber(latency_us or nil) or 0 end
end

-- Raises the share for the time since the last feedback or slow-down. A part of that time that is
-- too short for a millionth counts at the next call.
local function speed_up(r)
  local us = math.max(now_us - math.max(r.feedback_us, r.slowed_us), 0)
  r.allowed_share = math.min(FULL, r.allowed_share + floor(math.min(us, LONGEST_GAP_US) / GAIN_US))
  r.feedback_us = now_us - us % GAIN_US
end

-- Applies the share in the record to the key's rate.
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

-- Records that the upstream rate limited a call. If the limit adapts, the key slows down.
local function slow_down(name, key, r, min_share, target_latency_us)
  r.rate_limited, r.rate_limited_us = r.rate_limited + 1, now_us
  if not min_share then return store_record(name, key, r) end
  local halve = r.allowed_share == FULL or r.rate_limited > 1
  r.allowed_share, r.slowed_us = floor(math.min(r.allowed_share, r.share) * (halve and 0.5 or 0.9)), now_us
  adapt(name, key, r, min_share, target_latency_us)
end
