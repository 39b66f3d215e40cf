-- What every script starts with: the scope's keys and the time. All keys of a call share the
-- scope's hash tag, so they are in one slot. Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- After a meter's ID: how many lanes take turns there.
local LANES_SUFFIX = '\n'

-- After a lane's name: when it had its last turn.
local TURN_SUFFIX = '\n'

-- The largest time, in the year 2255. Numbers in Lua are exact up to it.
local MAX_INT = 9007199254740992

-- How much longer a meter's key lives than its state matters, in milliseconds, so that a clock that
-- steps back by less finds it.
local GRACE_MS = 60000

-- The time for which a call can give permits back, and for which feedback about a key is kept.
local MEMORY_US = 3600000000

-- Returns a number as text: tostring would keep 14 digits of 16, and '%.0f' takes five times as
-- long. In two parts it fits a Redis of 32 bits, too.
local function int(x)
  if x < 1000000000 then return string.format(x > -1000000000 and '%d' or '%.0f', x) end
  local low = x % 1000000000
  return string.format('%d%09d', (x - low) / 1000000000, low)
end

-- Returns a key of the scope: hg('limit', name) is hg:{scope}:limit:<name>. The table in
-- docs/design.md says what each key holds.
local function hg(name, of)
  if of then return P .. name .. ':' .. of end
  return P .. name
end
