-- Holds one meter shut until a moment, or opens it again.
-- Touches: blocked (rw), changes (w), limit (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] microsecond until which it is shut; one in the past opens it
-- Returns 1, or 0 if there is no such limit
-- @include change
-- @include blocked
local name, key, until_us = ARGV[1], ARGV[2], math.min(tonumber(ARGV[3]), FAR)

if call('EXISTS', hg('limit', name)) == 0 then return 0 end
shut_until(name, key, until_us)
changed('meter', name .. '|' .. key)
return 1
