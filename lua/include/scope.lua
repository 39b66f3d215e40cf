-- What every script starts with: the scope's keys and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- After a meter's id: how many lanes take turns there.
local LANES = '\n'

-- After a lane: when it had its last turn.
local TURN = '\n'

-- Times beyond this, in the year 2255, are this: to here numbers are exact.
local FAR = 9007199254740992

-- A meter's key lives so much longer than its state matters, in milliseconds:
-- a clock that steps back by less finds it.
local GRACE = 60000

-- What a call has taken can come back, and what is known of a key is remembered, for
-- so long: an hour.
local MEMORY_US = 3600000000

-- The only way a number becomes text: tostring would keep 14 digits of 16, and
-- '%.0f' takes five times as long. In two parts it fits a Redis of 32 bits too.
local function int(x)
  if x < 1000000000 then return string.format(x > -1000000000 and '%d' or '%.0f', x) end
  local low = x % 1000000000
  return string.format('%d%09d', (x - low) / 1000000000, low)
end

-- The one home of the layout: hg('limit', name) is the key hg:{scope}:limit:<name>.
--   limit:<name>       hash    a limit's definition, and what changes beside it
--   limits             set     their names
--   summaries          hash    limit -> what every call needs of its definition
--   deleted            hash    limits that were deleted on purpose, and their last summary
--   blocked:<name>     zset    keys of a limit by the microsecond until which they are shut
--   overrides:<name>   hash    what differs for single keys of a limit: key -> record.lua's words
--   ending:<name>      zset    those of them that end, by the microsecond at which they do
--   m:<kind>:<meter>   by kind a meter's state; <meter> is <name>|<key>
--   cron:<schedule>    hash    what is known of a schedule: its last tick, and one half done
--   crawls             zset    crawls by the microsecond at which a job took a URL last
--   crawl:<name>       hash    a crawl's run, and the microsecond at which it began
--   crawl_seen:<run>   hash    URL -> its state, depth and job; <run> is <name>|<run>
--   crawl_hosts:<run>  hash    <host>|<state> -> how many URLs; of all without a host
--   crawl_pages:<name> hash    URL -> what the next run wants to know of the page
--   crawl_before:<name> hash   the same of pages that no run has met lately
--   robots:<origin>    hash    an origin's robots.txt, and when it was fetched
--   robots_busy:<origin> string that somebody fetches it
--   cell:<key>         string  the meter of a limit that is given with the call
--   changes            string  how many changes of limits and meters there were
--   changelog          stream  who changed what, for people
--   wake               channel words to the process that gives turns
--   admitted:<caller>  string  the number of a caller's last call that was allowed, settled, deleted or written down
--   jobs               hash    job -> its ticket, costs, lane
--   seq                string  the last number given
--   demand             hash    meter -> permits wanted by all that wait
--   meters             hash    meter -> permits reserved for called jobs; meter .. LANES -> how many lanes take turns there
--   lane:<lane>        zset    waiting jobs by ticket
--   called:<lane>      zset    called jobs by the microsecond until which permits are reserved
--   lanes              zset    lanes by number
--   tickets            hash    lane -> the last ticket given; lane .. TURN -> when it had its last turn
--   full               set     lanes of which as many are called as may be
--   contended          hash    meter -> number of the last lane that marked it
--   patience           zset    jobs by the microsecond at which they must have run
--   weights            hash    queue -> how it takes turns
--   turns              string  the process that gives turns
--   asynq              string  the asynq Redis whose jobs wait: a name of its data, its address
--   history            stream  what each process did in a second: a summary
--   totals             hash    queue, task type and outcome -> how many jobs
--   minutes:<hour>     hash    a minute of that hour since 1970, names and what is counted of them -> how many
--   hours:<day>        hash    the same by the hours of a day
--   workers            zset    processes by the microsecond at which they said that they live
--   worker:<process>   string  what one says of itself
--   survey             string  what waits, by limit, as it was found a short while ago
--   surveyor           string  the process that looks at what waits
--   epoch              string  set once; gone where Redis has lost its data
local function hg(name, of)
  if of then return P .. name .. ':' .. of end
  return P .. name
end
