-- How meters stand, for people and their charts: nothing changes.
-- Touches: blocked (r), demand (r), limit (r), m (rw), meters (r), overrides (r),
--   summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] limit, key of each meter
-- Returns names of limits whose calendar must be extended, now_us, and for each
--   meter {} where there is no such limit, else {permits left, capacity, when the
--   next may be taken, permits wanted by all that wait or are called, permits
--   reserved, known 0 or 1, shut 0 or 1, paused 0 or 1, how many keys of the limit
--   are blocked, permits that come back in a period, that period in microseconds or
--   0 where leases decide}
-- @include meter

local out, stale = { '', now_us }, {}
for i = 1, #ARGV, 2 do
  local m = load_meter(ARGV[i], ARGV[i + 1])
  if m then
    local reserved = tonumber(call('HGET', hg('meters'), m.id) or 0)
    local wanted = reserved + tonumber(call('HGET', hg('demand'), m.id) or 0)
    if m.stale then stale[#stale + 1] = m.name end
    out[#out + 1] = {
      m.open_left and m.open_left() or m.left(), m.capacity, m.ready_at(reserved + 1),
      wanted, reserved, m.known and 1 or 0, m.shut and 1 or 0,
      call('HEXISTS', hg('limit', m.name), 'paused'), call('ZCOUNT', hg('blocked', m.name), '(' .. int(now_us), '+inf'),
      m.n, m.lease_us and 0 or m.period_us,
    }
  else
    out[#out + 1] = {}
  end
end
out[1] = table.concat(stale, ' ')
return out
