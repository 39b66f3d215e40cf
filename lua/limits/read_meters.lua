-- Reads meters, for display and for forecasts. A forecast starts at the states read.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] with_state: 1 to return states, too, else 0
-- ARGV[2…] limit, key of each meter
-- Returns the names of limits whose calendars Go must extend, separated by spaces; now_us; and for
--   each meter {} if its limit does not exist or its data is malformed, else a list of
--   kind, n            kind of the limit, and its permits per period
--   period_us          period; for a concurrency limit the duration of a lease
--   capacity, left     most permits that can be taken at once, and number of free permits
--   ready_at_us        first time at which a call can take a permit, Unix microseconds
--   reserved, demand   permits reserved for granted jobs, and permits that waiting jobs need
--   lanes              number of lanes whose jobs need the meter
--   known              1 if the script can compute when permits become free, else 0
--   paused             1 if the limit is paused, else 0
--   blocked_keys       number of blocked keys of the limit
--   blocked_until_us   end of this meter's block, Unix microseconds; 0 if it is not blocked
--   and, if with_state is 1:
--   since_us           time of the last change of the limit's or the key's rate, Unix microseconds
--   per_us, margin_us, zone  fields of the limit: configured period, margin, time zone or ''
--   state              sliding log: some of the times, each with the number of permits that it
--                      stands for; concurrency: number of held permits; else the state as stored
-- @include meter
-- @include count
-- @include try
local with_state, stale = ARGV[1] == '1', {}

-- Returns at most 1000 times of a log. After each time is the number of permits that it stands for.
local function sample_log(state)
  local length = call('LLEN', state)
  local step, out = ceil(length / 1000), {}
  for i = step - 1, length - 1 + step - 1, step > 0 and step or 1 do
    local last = i < length and i or length - 1
    out[#out + 1] = tonumber(call('LINDEX', state, last) or nil) or 0
    out[#out + 1] = last - i + step
  end
  return out
end

local function meter_row(name, key)
  local m = load_meter(name, key)
  if not m then return {} end
  if m.stale then stale[#stale + 1] = m.name end
  local shares = call('HMGET', hg('meters'), m.id, m.id .. LANES_SUFFIX)
  local limit = call('HMGET', hg('limit', name), 'paused', 'per_us', 'margin_us', 'zone', 'since_us')
  local blocked = m.closed and math.min(tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0, MAX_INT) or 0
  local reserved, left = parse_counter(shares[1]), m.open_left and m.open_left() or m.left()
  local row = {
    m.kind, m.n, m.lease_us or m.period_us, m.capacity, left, m.ready_at(reserved + 1),
    reserved, parse_counter(call('HGET', hg('demand'), m.id)), parse_counter(shares[2]), m.known and 1 or 0, limit[1] and 1 or 0,
    call('ZCOUNT', hg('blocked', name), '(' .. int(now_us), '+inf'), blocked > now_us and blocked or 0,
  }
  if not with_state then return row end
  local per_us = tonumber(limit[2] or nil) or 0
  if not m.lease_us and per_us < 1 then return {} end -- the definition is incomplete
  local state
  if m.kind == 'sliding_log' then
    state = sample_log(m.state)
  elseif m.kind == 'concurrency' then
    state = { m.capacity - left }
  else
    state = { call('GET', m.state) or '' }
  end
  for _, value in ipairs({
    math.max(tonumber(limit[5] or nil) or 0, m.since_us or 0),
    per_us, tonumber(limit[3] or nil) or 0, limit[4] or '', state,
  }) do row[#row + 1] = value end
  return row
end

local out = { '', now_us }
for i = 2, #ARGV, 2 do out[#out + 1] = try(meter_row, ARGV[i], ARGV[i + 1]) or {} end
out[1] = table.concat(stale, ' ')
return out
