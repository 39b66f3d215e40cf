-- Releases the leader's lease, and notifies the other processes, so that one of them, or the
-- successor, takes the lease at once.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that releases its lease
-- ARGV[2] successor: the process that should lead next; '' if any process may
-- Returns 1, or 0 if the process does not hold the lease
-- @include scope
local process, successor = ARGV[1], ARGV[2]

if call('GET', hg('leader')) ~= process then return 0 end
call('DEL', hg('leader'))
call('PUBLISH', hg('wake'), 'stepped_down 0 ' .. process .. ' ' .. successor)
return 1
