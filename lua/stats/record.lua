-- Appends to the stream of statistics what a process did in the last second.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] text that says what the process did
-- ARGV[2] age at which the script deletes entries of the stream, microseconds
-- Returns 1
-- @include scope
local summary, reach_us = ARGV[1], tonumber(ARGV[2])

call('XADD', hg('stats'), 'MINID', '~', int(floor((now_us - reach_us) / 1000)), '*', 's', summary)
call('PEXPIRE', hg('stats'), int(reach_us / 1000))
return 1
