-- @include record

-- How a limit that adapts slows single keys down, and speeds them up again, never
-- beyond its rate.
--
-- Refusals: additive increase and multiplicative decrease (Chiu and Jain, "Analysis
-- of the increase and decrease algorithms for congestion avoidance", 1989). Half of
-- the rate goes at the first refusal, and again where refusals follow in a row; a
-- tenth where a key was getting faster, for then it was only just too fast. While
-- calls are accepted a key gains a thousandth of the whole rate a second: so it
-- asks for too much once in a while, and not often.
--
-- Latency: the rule of Scrapy's AutoThrottle. The pace is what keeps the other side
-- at the latency wanted; it slows down at once, and speeds up by half of the way.
local GAIN_US = 1000 -- how long a millionth takes to come back
local LONGEST_GAP_US = 10000000 -- as much counts of the time between two calls
-- A change smaller than this part of the share waits for more: each has a key owe
-- whole permits.
local NOTICED = 0.02

-- The least share of the rate and the latency wanted, or nil where the limit does
-- not adapt. Without a latency that is 0.
local function adapts(name)
  local least, latency_us = unpack(call('HMGET', hg('limit', name), 'adapt_share', 'adapt_latency_us'))
  least = tonumber(least or nil)
  if least then return least, tonumber(latency_us or nil) or 0 end
end

-- What is less than a millionth is left for the next call to count.
local function rise(r)
  local us = math.max(now_us - math.max(r.heard_us, r.fell_us), 0)
  r.bearable = math.min(FULL, r.bearable + floor(math.min(us, LONGEST_GAP_US) / GAIN_US))
  r.heard_us = now_us - us % GAIN_US
end

-- Has a key go by what its record has learned now.
local function adapt(name, key, r, least, wanted_us)
  r.bearable = math.max(r.bearable, least)
  local share = r.bearable
  if wanted_us > 0 and r.latency_us > wanted_us then share = math.min(share, math.max(least, floor(FULL * wanted_us / r.latency_us))) end
  if share ~= r.share and (share == FULL or math.abs(share - r.share) >= NOTICED * r.share) then
    r.share = share
    change_rate(name, key, r)
  else
    store_record(name, key, r)
  end
end

-- Has a key's record learn that the other side refused a call: where the limit adapts, it
-- slows down.
local function fall(name, key, r, least, wanted_us)
  r.refused, r.refused_us = r.refused + 1, now_us
  if not least then return store_record(name, key, r) end
  local again = r.bearable == FULL or r.refused > 1
  r.bearable, r.fell_us = floor(math.min(r.bearable, r.share) * (again and 0.5 or 0.9)), now_us
  adapt(name, key, r, least, wanted_us)
end
