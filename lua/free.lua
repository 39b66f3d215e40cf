-- Gives a holder's leases on concurrency limits back and has the pump pass them
-- on.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2…] limit, key, cost for each need
-- Returns how many permits were freed
-- @include change
local holder = ARGV[1]

local freed = 0
for i = 2, #ARGV, 3 do
  local id = ARGV[i] .. '|' .. ARGV[i + 1]
  local state = P .. 'm:concurrency:' .. id
  local gone = call('ZREM', state, holder)
  for k = 2, tonumber(ARGV[i + 2]) do gone = gone + call('ZREM', state, holder .. '\n' .. k) end
  if gone > 0 and call('HEXISTS', P .. 'contended', id) == 1 then changed('meter', id) end
  freed = freed + gone
end
return freed
