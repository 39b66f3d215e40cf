-- Takes or renews the lease of the one process that gives turns, and tells it
-- what it may not have heard.
-- Touches: changes (r), contended (w), epoch (rw), lanes (r), patience (r),
--   turns (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- ARGV[2] life of the lease in milliseconds
-- ARGV[3] number of the last lane that it knows
-- ARGV[4] a name for the scope's data, if they have none
-- ARGV[5] most lanes to name
-- Returns {1, 1 where the lease was taken anew, now_us, number of changes to
--   meters, name of the data, lanes that got their first job since, or all where
--   the lease was taken anew, with their numbers, when the time of the next job is
--   up or 0}; {0, microseconds until the lease of another process ends}
-- @include mark
local process, lease_ms, seen, name, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local holder = call('GET', hg('turns'))
if holder and holder ~= process then return { 0, call('PTTL', hg('turns')) * 1000 } end
if not holder then seen = '-1' end
call('SET', hg('turns'), process, 'PX', lease_ms)
if call('EXISTS', hg('lanes')) == 1 then
  call('PEXPIRE', hg('contended'), MARKS_MS)
else -- marks of lanes that came and went unheard of
  call('DEL', hg('contended'))
end
call('SET', hg('epoch'), name, 'NX')

return {
  1, holder and 0 or 1, now_us, tonumber(call('GET', hg('changes')) or 0), call('GET', hg('epoch')),
  call('ZRANGEBYSCORE', hg('lanes'), '(' .. seen, '+inf', 'WITHSCORES', 'LIMIT', 0, most),
  tonumber(call('ZRANGE', hg('patience'), 0, 0, 'WITHSCORES')[2] or 0),
}
