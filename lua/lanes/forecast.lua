-- When permits would exist for those who come after everything that waits.
-- Touches: blocked (r), demand (r), limit (r), m (rw), meters (r),
--   overrides (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2…] limit, key, permits for each need
-- Returns names of limits whose calendar must be extended, now_us, and for each need
--   ready_at_us, -1 where there is no such limit, the permits that wait there
--   already, and known 0 where nobody can tell when they exist
-- @include meter
-- @include counted
local app = ARGV[1]

local out, stale = { '', now_us }, {}
for i = 2, #ARGV, 3 do
  local m = load_meter(ARGV[i], ARGV[i + 1], app)
  local waiting, at, known = 0, -1, 0
  if m then
    waiting = counted(call('HGET', hg('demand'), m.id)) + counted(call('HGET', hg('meters'), m.id))
    at = m.ready_at(waiting + tonumber(ARGV[i + 2]))
    known = (m.known or at <= now_us) and 1 or 0
    if m.stale then stale[#stale + 1] = m.name end
  end
  out[#out + 1] = at
  out[#out + 1] = waiting
  out[#out + 1] = known
end
out[1] = table.concat(stale, ' ')
return out
