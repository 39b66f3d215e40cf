-- Extends a holder's leases on concurrency limits.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2…] limit, key of each meter; the script ignores limits of other kinds
-- Returns 1, or 0 if the holder had lost one of the leases
-- @include leases
local holder = ARGV[1]

local kept = 1
for i = 2, #ARGV, 2 do
  local kind, lease_us = unpack(call('HMGET', hg('limit', ARGV[i]), 'kind', 'lease_us'))
  if kind == 'concurrency' and tonumber(lease_us or nil) then
    local state = hg('m', 'concurrency:' .. ARGV[i] .. '|' .. ARGV[i + 1])
    local sets = lease_sets(state)
    local held = held_by(sets, holder)
    if held > 0 then set_held(sets, holder, held, now_us + tonumber(lease_us)) else kept = 0 end
  end
end
return kept
