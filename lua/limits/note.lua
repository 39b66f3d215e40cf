-- Adds an entry to the changelog about a change that concerns no limit.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] what was done
-- ARGV[2] actor
-- ARGV[3…] names and values of what was changed
-- Returns 1
-- @include change
local what, actor = ARGV[1], ARGV[2]

log_change(what, '', actor, unpack(ARGV, 3))
return 1
