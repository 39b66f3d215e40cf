-- Makes a meter as if never used, and opens it.
-- Touches: blocked (w), changelog (w), changes (w), limit (r), m (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] who says so
-- Returns 1, or 0 if there is no such limit
-- @include leases
-- @include change
-- @include note
local name, key, by = ARGV[1], ARGV[2], ARGV[3]
local id = name .. '|' .. key

local kind = call('HGET', hg('limit', name), 'kind')
if not kind then return 0 end
local state = hg('m', kind .. ':' .. id)
call('UNLINK', state .. '\n', unpack(lease_sets(state)))
call('ZREM', hg('blocked', name), key)
changed('meter', id)
note('reset', name, by, 'key', key)
return 1
