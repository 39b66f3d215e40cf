-- Extends a holder's leases on concurrency limits: each lasts for the full lease of its limit from now
-- on. The holder goes by the time that it was told last, so no extension makes a lease end earlier,
-- even if the limit's lease is shorter now. A lease on a limit that was deleted, or that has another
-- kind now, is extended for the default lease, because the limit may be defined again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2] lease of a limit without a lease, microseconds
-- ARGV[3…] limit, key of each meter; the script ignores limits of other kinds
-- Returns the time until the first of the leases ends, microseconds; 0 if the holder had lost one of
-- the leases, or has none
-- @include leases
local holder, default_us = ARGV[1], tonumber(ARGV[2])

local first_us, is_lost = math.huge, false
for i = 3, #ARGV, 2 do
  local kind, lease_us = unpack(call('HMGET', hg('limit', ARGV[i]), 'kind', 'lease_us'))
  lease_us = kind == 'concurrency' and tonumber(lease_us or nil)
  local sets = lease_sets(hg('m', 'concurrency:' .. ARGV[i] .. '|' .. ARGV[i + 1]))
  local held, until_us = held_by(sets, holder)
  if held > 0 then
    until_us = math.max(until_us, now_us + (lease_us or default_us))
    set_held(sets, holder, held, until_us)
    first_us = math.min(first_us, until_us - now_us)
  elseif lease_us then
    is_lost = true
  end
end
return not is_lost and first_us < MAX_INT and first_us or 0
