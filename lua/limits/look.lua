-- How meters stand, for people and their charts: nothing changes.
-- Touches: blocked (r), demand (r), limit (r), m (rw), meters (r), overrides (r),
--   summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] limit, key of each meter
-- Returns names of limits whose calendar must be extended, now_us, and for each
--   meter {} where there is no such limit, or nothing can be read of the meter; else
--   {permits left, capacity, when the
--   next may be taken, permits wanted by all that wait or are called, permits
--   reserved, known 0 or 1, shut 0 or 1, paused 0 or 1, how many keys of the limit
--   are blocked, permits that come back in a period, that period in microseconds or
--   0 where leases decide}
-- @include meter
-- @include count
-- @include try

local stale = {}
local function stands(name, key)
  local m = load_meter(name, key)
  if m then
    local reserved = counted(call('HGET', hg('meters'), m.id))
    local wanted = reserved + counted(call('HGET', hg('demand'), m.id))
    if m.stale then stale[#stale + 1] = m.name end
    return {
      m.open_left and m.open_left() or m.left(), m.capacity, m.ready_at(reserved + 1),
      wanted, reserved, m.known and 1 or 0, m.shut and 1 or 0,
      call('HEXISTS', hg('limit', m.name), 'paused'), call('ZCOUNT', hg('blocked', m.name), '(' .. int(now_us), '+inf'),
      m.n, m.lease_us and 0 or m.period_us,
    }
  end
  return {}
end

local out = { '', now_us }
for i = 1, #ARGV, 2 do out[#out + 1] = try(stands, ARGV[i], ARGV[i + 1]) or {} end
out[1] = table.concat(stale, ' ')
return out
