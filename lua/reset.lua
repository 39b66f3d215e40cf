-- Makes a meter as if never used, and opens it.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- Returns 1, or 0 if there is no such limit
-- @include change
local name, key = ARGV[1], ARGV[2]
local id = name .. '|' .. key

local kind = call('HGET', P .. 'limit:' .. name, 'kind')
if not kind then return 0 end
call('DEL', P .. 'm:' .. kind .. ':' .. id)
call('HDEL', P .. 'blocked', id)
changed('meter', id)
return 1
