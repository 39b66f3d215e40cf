-- Releases the leader's lease, and notifies the other processes, so that one of them takes the
-- lease at once.
-- Touches: leader (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- Returns 1, or 0 if the process does not hold the lease
-- @include scope
local process = ARGV[1]

if call('GET', hg('leader')) ~= process then return 0 end
call('DEL', hg('leader'))
call('PUBLISH', hg('wake'), 'stepped_down ' .. process)
return 1
