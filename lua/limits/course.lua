-- How meters stand, for who works out when waiting jobs would run.
-- Touches: blocked (r), demand (r), limit (r), m (rw), meters (r), overrides (r),
--   summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] limit, key of each meter
-- Returns now_us, and for each meter {} where there is no such limit, or nothing can be read
--   of it; else {kind, n,
--   period_us or the lease, capacity, permits reserved, permits wanted by all that
--   wait, how many lanes take turns there, paused 0 or 1, blocked until or 0, until when it counts by
--   that rate or 0, and n, period_us, capacity from then on; since when it does, the
--   limit's per_us, margin_us and zone, and its state: of a sliding log the times of
--   some of its permits, each with how many it stands for; of a concurrency limit how
--   many permits are held; of the others their words}
-- @include meter
-- @include count
-- @include try

-- Some of the times of a log, a thousand at most, each with how many it stands for.
local function log_of(state)
  local length = call('LLEN', state)
  local step, out = ceil(length / 1000), {}
  for i = step - 1, length - 1 + step - 1, step > 0 and step or 1 do
    local last = i < length and i or length - 1
    out[#out + 1] = tonumber(call('LINDEX', state, last) or nil) or 0
    out[#out + 1] = last - i + step
  end
  return out
end

local function state_of(m)
  if m.kind == 'sliding_log' then return log_of(m.state) end
  if m.kind == 'concurrency' then return { m.capacity - (m.open_left and m.open_left() or m.left()) } end
  return { call('GET', m.state) or '' }
end

local function stands(name, key)
  local m = load_meter(name, key)
  if not m then return {} end
  local of = call('HMGET', hg('meters'), m.id, m.id .. LANES)
  local said = call('HMGET', hg('limit', name), 'paused', 'per_us', 'margin_us', 'zone', 'since_us')
  if not m.lease_us and (tonumber(said[2] or nil) or 0) < 1 then return {} end -- its definition is lost
  local blocked = m.shut and math.min(tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0, FAR) or 0
  local after = m.ends_us and load_meter(name, key, nil, nil, m.ends_us) or m
  local since = math.max(tonumber(said[5] or nil) or 0, m.since_us or 0)
  return {
    m.kind, m.n, m.lease_us or m.period_us, m.capacity, counted(of[1]), counted(call('HGET', hg('demand'), m.id)), counted(of[2]),
    said[1] and 1 or 0, blocked > now_us and blocked or 0, m.ends_us or 0, after.n, after.period_us, after.capacity,
    since, tonumber(said[2] or nil) or 0, tonumber(said[3] or nil) or 0, said[4] or '', state_of(m),
  }
end

local out = { now_us }
for i = 1, #ARGV, 2 do out[#out + 1] = try(stands, ARGV[i], ARGV[i + 1]) or {} end
return out
