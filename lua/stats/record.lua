-- Appends what a process did in the last second to the stream.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] summary
-- ARGV[2] age at which entries are deleted, microseconds
-- Returns 1
-- @include scope
local summary, reach_us = ARGV[1], tonumber(ARGV[2])

call('XADD', hg('stats'), 'MINID', '~', int(floor((now_us - reach_us) / 1000)), '*', 's', summary)
call('PEXPIRE', hg('stats'), int(reach_us / 1000))
return 1
