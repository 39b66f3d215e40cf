-- Gives lanes their turns, in the order of the arguments. In a turn, the first waiting job of a
-- lane is granted if every meter that the job needs has its permits now, or will have them soon
-- enough. The permits of the granted job are reserved. The job takes them in acquire.lua, which
-- checks the limits. So two leaders at once can be unfair, but cannot exceed a limit.
-- Safe to repeat: a repeat gives no turns, and nor does a sending that arrives after a later call of
-- its caller.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that calls as the leader
-- ARGV[2] longest time from a grant until its permits exist, for any job, microseconds
-- ARGV[3] caller: ID of a caller that makes one call at a time
-- ARGV[4] call_number: number of the call; a caller's numbers grow, and only repeats of the call have
--   the same number
-- ARGV[5…] for each turn:
--   lane        name of the lane
--   advance_us  longest time from the grant until the job's permits exist, microseconds
--   held        for each of the lane's meters, the number of permits that are held for other lanes;
--               the numbers are separated by commas
-- Returns {0} if another process leads, and {-1, now_us} for a repeat: the call may have granted
--   jobs. Any other call returns a list: now_us; a text of the names of limits whose calendars must
--   be extended, separated by spaces; a row for each turn; and a row for each lane, in the order of
--   the lanes' first turns. The row of a turn:
--   outcome            number of a fairqueue.Outcome; the row has more fields if a job is granted:
--   job                ID of the granted job
--   at_us              time from which its permits exist, Unix microseconds
--   until_us           end of the reservation of its permits, Unix microseconds
--   takes_early        1 if the job can call acquire.lua before at_us, to start at at_us; else 0
--   The row of a lane:
--   granted            number of its granted jobs that have not taken their permits yet
--   max_advance_us     longest time from the next job's grant until its permits exist, microseconds
--   and, if a next job waits and all its limits exist, for each meter:
--   cost, ready_at_us  the job's permits, and the time from which they exist, Unix microseconds
--   known              1 if ready_at_us is known, else 0
--   refill_us          time after which used permits are free again, microseconds
--   closed             1 if the limit is paused or the key blocked, else 0
--   per_refill         number of jobs of the same cost whose permits become free at the same time
-- @include scope
-- @inner
-- @include turns
-- @include try
-- @include note_call
local process, max_advance_us, caller, call_number = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- Returns the row of a lane whose data are corrupt. It delays the lane's next turn by a second.
local function unreadable_needs(lane)
  local out = { lane.granted, 0 }
  for _ = 1, #lane.ids do
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6] = 1, now_us + 1000000, 1, 1000000, 1, 1
  end
  return out
end

if call('GET', hg('leader')) ~= process then return { 0 } end
if note_call(caller, call_number, call_number) then return { -1, now_us } end
local out = { now_us, '' }
for i = 5, #ARGV, 3 do
  local lane = lane_of(ARGV[i])
  lane.turns = lane.turns + 1
end
-- A turn that fails because of corrupt data has the outcome REFUSED. Other turns are not affected.
for i = 5, #ARGV, 3 do
  out[#out + 1] = try(try_turn, lane_of(ARGV[i]), tonumber(ARGV[i + 1]), ARGV[i + 2], max_advance_us) or { REFUSED }
end
for i = 1, #lanes do out[#out + 1] = try(next_needs, lanes[i], max_advance_us) or unreadable_needs(lanes[i]) end
store()
out[2] = table.concat(stale, ' ')
return out
