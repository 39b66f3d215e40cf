-- Gives back a holder's leases on concurrency limits. The script notifies the dispatcher of a freed
-- meter at which a lane waits.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2…] limit, key of each meter
-- Returns the number of permits that the holder gave back, without those of ended leases
-- @include leases
-- @include change
local holder = ARGV[1]

local freed = 0
for i = 2, #ARGV, 2 do
  local id = ARGV[i] .. '|' .. ARGV[i + 1]
  local state = hg('m', 'concurrency:' .. id)
  local sets = lease_sets(state)
  local held = held_by(sets, holder)
  set_held(sets, holder, 0, now_us) -- removes an ended lease, too, because the clock may step back
  if held > 0 and is_contended(id) then publish_change('meter', id) end
  freed = freed + held
end
return freed
