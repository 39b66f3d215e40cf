-- Gives the lease of a process that gives turns back.
-- Touches: turns (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- Returns 1, or 0 where it has none
-- @include scope
local process = ARGV[1]

if call('GET', hg('turns')) ~= process then return 0 end
return call('DEL', hg('turns'))
