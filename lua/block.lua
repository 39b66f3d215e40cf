-- Holds one meter shut until a moment, or opens it again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] microsecond until which it is shut; one in the past opens it
-- Returns 1, or 0 if there is no such limit
-- @include change
local name, key, until_us = ARGV[1], ARGV[2], tonumber(ARGV[3])
local id = name .. '|' .. key
local blocked = P .. 'blocked'

if call('EXISTS', P .. 'limit:' .. name) == 0 then return 0 end
local all = call('HGETALL', blocked)
for i = 1, #all, 2 do
  if tonumber(all[i + 1]) <= now_us then call('HDEL', blocked, all[i]) end
end
if until_us > now_us then call('HSET', blocked, id, int(until_us)) else call('HDEL', blocked, id) end
changed('meter', id)
return 1
