-- Claims a scope for one asynq Redis, whose jobs then wait here, or renews the
-- claim. That Redis is the same if its data are, as after a failover; or its
-- address is, as after its data were lost; or its data were the claim's before.
-- Touches: asynq (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] name of the asynq Redis's data
-- ARGV[2] name of those that it had before, as this process knows, or ''
-- ARGV[3] its address
-- ARGV[4] how long the claim holds, in milliseconds
-- Returns the address of another asynq Redis that has the scope, or ''
-- @include scope
local data, before, address, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local claim = call('GET', hg('asynq'))
if claim then
  local its_data, its_address = string.match(claim, '^([^\n]*)\n(.*)$')
  if its_data ~= data and its_data ~= before and its_address ~= address then return its_address end
end
call('SET', hg('asynq'), data .. '\n' .. address, 'PX', life_ms)
return ''
