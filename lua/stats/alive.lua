-- Records that a process is alive, or removes the process when it stops.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- ARGV[2] its description as JSON; '' when it stops
-- ARGV[3] time for which the record is kept, microseconds
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
