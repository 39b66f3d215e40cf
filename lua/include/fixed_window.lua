-- A fixed window: at most n permits in each aligned period.
-- State: "start count". Boundaries are multiples of the period, or, where a
-- calendar decides, the list `edges` that Go computed; the choice among them is
-- made here by Redis's clock. A window opens margin_us after its start.
local n, period_us = m.n, m.period_us
local margin_us, offset_us, stored = unpack(call('HMGET', m.limit, 'margin_us', 'offset_us', 'edges'))
local edges, here

if stored then
  edges = {}
  for edge in string.gmatch(stored, '%d+') do edges[#edges + 1] = tonumber(edge) end
end

-- The start of the i-th window after the one that holds `at`.
local function locate(at)
  if not edges then return at - (at - offset_us) % period_us end
  here = 0
  while edges[here + 1] and edges[here + 1] <= at do here = here + 1 end
  if here == 0 or here == #edges then m.stale = true end
  return edges[here] or at
end
local start, count = locate(now_us), 0
local function starts(i)
  if not edges then return start + i * period_us end
  local known = edges[here + i]
  if known then return known end
  return (edges[#edges] or start) + (here + i - #edges) * period_us
end

local state = call('GET', m.state)
if state then
  local was_start, was_count = string.match(state, '^(%d+) (%d+)$')
  was_start = tonumber(was_start)
  -- A stored window in the future means that the clock stepped back: a
  -- meter's time does not.
  if was_start > start then start = locate(was_start) end
  if was_start >= start then count = tonumber(was_count) end
end
local open = start + margin_us
local spare = n > count and n - count or 0

function m.ready_at(k)
  local at = open
  if k == 0 then return now_us end
  if k > spare then at = starts(ceil((k - spare) / n)) + margin_us end
  return at > now_us and at or now_us
end

function m.take(k)
  count = count + k
  spare = n > count and n - count or 0
  local ttl_ms = ceil((starts(1) - now_us) / 1000) + 1000
  call('SET', m.state, string.format('%.0f %.0f', start, count), 'PX', int(ttl_ms))
end

function m.left()
  return open > now_us and 0 or spare
end

function m.full_at()
  return count > 0 and starts(1) or now_us
end
