-- Takes or renews the leader's lease for a process, and returns the lanes that the process does not
-- know. If the process knows a lane with a higher number than Redis, Redis has lost lanes in a
-- failover. The process must then read all lanes.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process
-- ARGV[2] duration of the lease, milliseconds
-- ARGV[3] number of the last lane that the process knows
-- ARGV[4] epoch to store if the scope has none
-- ARGV[5] most lanes to return
-- ARGV[6] attempt: 1 when the call is sent for the first time, a higher number in a repeat. A
--   repeat reads all lanes, because the first attempt may have taken the lease and lost its reply
-- Returns {0, microseconds until the lease ends, leader} if another process leads; else a list of
--   held           1
--   read_all       1 if the process must read all lanes, else 0
--   now_us         Redis's clock, Unix microseconds
--   changes        number of meter changes so far
--   epoch          data version and random name of the scope's data, as stored or as ARGV[4]
--   lanes          name and number of each lane after the last known one, or of all lanes
--   next_deadline  next wait deadline, Unix microseconds; 0 if there is none
-- @include mark
-- @include next_deadline
local process, lease_ms, last_known, new_epoch, max_lanes, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local holder = call('GET', hg('leader'))
if holder and holder ~= process then
  local left_ms = call('PTTL', hg('leader'))
  if left_ms >= 0 then return { 0, left_ms * 1000, holder } end
  holder = nil -- headgate writes no lease without an end
end

-- Parses a counter. Returns 0 if the counter is missing, and nil or false if it is malformed.
local function number(text)
  local n = tonumber(string.match(text or '0', '^%d+$') or nil)
  return n and n < MAX_INT and n
end
local stored = call('MGET', hg('seq'), hg('changes'), hg('epoch'))
local last_lane, changes, epoch = number(stored[1]), number(stored[2]), stored[3]
if not last_lane then call('SET', hg('seq'), '0') end
if not changes then call('SET', hg('changes'), '0') end
last_lane, changes = last_lane or 0, changes or 0
if not epoch then
  call('SET', hg('epoch'), new_epoch)
  epoch = new_epoch
end

local read_all = not holder or attempt ~= '1' or tonumber(last_known) > last_lane
if read_all then
  last_known = '-inf'
  local unknown = call('ZRANGEBYSCORE', hg('lanes'), '(' .. int(last_lane), '+inf', 'LIMIT', 0, max_lanes)
  for i = 1, #unknown do call('ZADD', hg('lanes'), int(call('INCR', hg('seq'))), unknown[i]) end
end

call('SET', hg('leader'), process, 'PX', lease_ms)
if call('EXISTS', hg('lanes')) == 1 then
  call('PEXPIRE', hg('contended'), MARKS_MS)
else -- there are no lanes: delete the data of earlier lanes
  call('DEL', hg('contended'), hg('tickets'), hg('full'), hg('meters'), hg('demand'))
end
local deadline_us = next_deadline()
if deadline_us and call('EXISTS', hg('jobs')) == 0 then -- deadlines without jobs
  call('DEL', hg('deadlines'))
  deadline_us = nil
end

return {
  1, read_all and 1 or 0, now_us, changes, epoch,
  call('ZRANGEBYSCORE', hg('lanes'), '(' .. last_known, '+inf', 'WITHSCORES', 'LIMIT', 0, max_lanes),
  deadline_us or 0,
}
