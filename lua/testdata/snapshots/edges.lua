-- Stores the boundaries of a calendar limit's windows, which Go computed.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] the definition's text that they were computed from
-- ARGV[3] microseconds, ascending, separated by spaces
-- Returns 1, or 0 where the definition has changed meanwhile
local P = KEYS[1]
local key, text, edges = P .. 'limit:' .. ARGV[1], ARGV[2], ARGV[3]

if redis.call('HGET', key, 'text') ~= text then return 0 end
redis.call('HSET', key, 'edges', edges)
return 1
