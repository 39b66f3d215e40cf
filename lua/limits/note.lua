-- Writes down for people what was changed that is no limit's.
-- Touches: changelog (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] what was done
-- ARGV[2] who did it
-- ARGV[3…] names and values of what that was done to
-- Returns 1
-- @include change
local what, by = ARGV[1], ARGV[2]

note(what, '', by, unpack(ARGV, 3))
return 1
