-- Records that a process is alive, or removes the process when it stops.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] ID of the process
-- ARGV[2] description of the process as JSON; '' when the process stops
-- ARGV[3] time for which Redis keeps the record after this call, microseconds
-- Returns 1
-- @include scope
local process, text, keep_us = ARGV[1], ARGV[2], tonumber(ARGV[3])

if text == '' then
  call('ZREM', hg('workers'), process)
  call('DEL', hg('worker', process))
  return 1
end
call('ZADD', hg('workers'), int(now_us), process)
call('ZREMRANGEBYSCORE', hg('workers'), '-inf', int(now_us - keep_us))
call('PEXPIRE', hg('workers'), int(keep_us / 1000))
call('SET', hg('worker', process), text, 'PX', int(keep_us / 1000))
return 1
