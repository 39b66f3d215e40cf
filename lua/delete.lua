-- Deletes a limit. Jobs that wait for it are called back to learn it.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- Returns 1, or 0 if there was none
-- @include change
local name = ARGV[1]

call('SREM', P .. 'limits', name)
if call('DEL', P .. 'limit:' .. name) == 0 then return 0 end
changed('limit', name)
return 1
