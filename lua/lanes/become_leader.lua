-- Takes or renews the lease of the leader, and tells the leader what it may not have heard. If it
-- knows of more lanes than there were, the last were lost in a failover, and it is as if it took
-- the lease anew.
-- Touches: changes (rw), contended (w), deadlines (rw), demand (w), epoch (rw), full (w), jobs (r),
--   lanes (rw), leader (rw), meters (w), seq (rw), tickets (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- ARGV[2] life of the lease in milliseconds
-- ARGV[3] number of the last lane that it knows
-- ARGV[4] a name for the scope's data, if they have none
-- ARGV[5] most lanes to name
-- ARGV[6] 1 the first time that this call is sent, more if it is a repeat: the reply that said that
--   the lease was taken anew may be lost
-- Returns {1, 1 where the lease was taken anew, now_us, number of changes to meters, name of the
--   data, lanes that got their first job since, or all if the lease was taken anew, with their
--   numbers, the next wait deadline or 0}; {0, microseconds until the lease of another process
--   ends}
-- @include mark
-- @include next_deadline
local process, lease_ms, seen, name, most, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local holder = call('GET', hg('leader'))
if holder and holder ~= process then return { 0, call('PTTL', hg('leader')) * 1000 } end

-- Reads a counter. One that is no number begins anew.
local function number(text)
  local n = tonumber(string.match(text or '0', '^%d+$') or nil)
  return n and n < FAR and n
end
local said = call('MGET', hg('seq'), hg('changes'), hg('epoch'))
local last, changes, epoch = number(said[1]), number(said[2]), said[3]
if not last then call('SET', hg('seq'), '0') end
if not changes then call('SET', hg('changes'), '0') end
last, changes = last or 0, changes or 0
if not epoch then
  call('SET', hg('epoch'), name)
  epoch = name
end

local anew = not holder or again ~= '1' or tonumber(seen) > last
if anew then
  seen = '-inf'
  local odd = call('ZRANGEBYSCORE', hg('lanes'), '(' .. int(last), '+inf', 'LIMIT', 0, most)
  for i = 1, #odd do call('ZADD', hg('lanes'), int(call('INCR', hg('seq'))), odd[i]) end
end

call('SET', hg('leader'), process, 'PX', lease_ms)
if call('EXISTS', hg('lanes')) == 1 then
  call('PEXPIRE', hg('contended'), MARKS_MS)
else -- what is left of lanes that came and went
  call('DEL', hg('contended'), hg('tickets'), hg('full'), hg('meters'), hg('demand'))
end
local ends = next_deadline()
if ends and call('EXISTS', hg('jobs')) == 0 then -- deadlines without jobs
  call('DEL', hg('deadlines'))
  ends = nil
end

return {
  1, anew and 1 or 0, now_us, changes, epoch,
  call('ZRANGEBYSCORE', hg('lanes'), '(' .. seen, '+inf', 'WITHSCORES', 'LIMIT', 0, most),
  ends or 0,
}
