-- Records that a process is alive, or removes the process when it stops. An operator drains a process by
-- an order in the hash `drained`.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] ID of the process
-- ARGV[2] description of the process as JSON; '' when the process stops
-- ARGV[3] time for which Redis keeps the record after this call, microseconds
-- Returns the ID of the order that drains the process, or ''
-- @include scope
local process, text, keep_us = ARGV[1], ARGV[2], tonumber(ARGV[3])

if text == '' then
  call('ZREM', hg('workers'), process)
  call('DEL', hg('worker', process))
  call('HDEL', hg('drained'), process)
  return ''
end
call('ZADD', hg('workers'), int(now_us), process)
call('ZREMRANGEBYSCORE', hg('workers'), '-inf', int(now_us - keep_us))
call('PEXPIRE', hg('workers'), int(keep_us / 1000))
call('SET', hg('worker', process), text, 'PX', int(keep_us / 1000))
local order = call('HGET', hg('drained'), process)
if order then call('PEXPIRE', hg('drained'), int(keep_us / 1000)) end
return order or ''
