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

-- The one place that makes keys: hg('limit', name) is the key hg:{scope}:limit:<name>. The table
-- in docs/design.md says what each of them holds.
local function hg(name, of)
  if of then return P .. name .. ':' .. of end
  return P .. name
end
