-- Stores the boundaries of a calendar limit's windows, which Go computes.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] text of the definition for which Go computed the boundaries
-- ARGV[3] boundaries, Unix microseconds, ascending, separated by spaces
-- Returns 1, or 0 if the limit now has another definition or none
-- @include scope
local name, text, edges = ARGV[1], ARGV[2], ARGV[3]
local limit = hg('limit', name)

if call('HGET', limit, 'text') ~= text then return 0 end
call('HSET', limit, 'edges', edges)
return 1
