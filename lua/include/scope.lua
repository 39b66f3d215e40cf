-- Defines the names of the scope's keys, and the time. All keys of a scope have the same hash tag,
-- so they are in one slot. now_us is the time of Redis's clock at the start of the call, in Unix
-- microseconds.
local scope_prefix = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- The field <meter>LANES_SUFFIX of `meters` holds the number of lanes that share the meter.
local LANES_SUFFIX = '\n'

-- The field <lane>TURN_SUFFIX of `tickets` holds the time of the lane's last turn.
local TURN_SUFFIX = '\n'

-- Lua represents all integers up to this one exactly. As Unix microseconds it is in the year 2255.
local MAX_INT = 9007199254740992

-- Keys live this much longer than their content is needed, in case Redis's clock is set back.
local GRACE_MS = 60000

-- The number of a caller's last call is stored for this time. No packet arrives that late.
local CALL_MS = 3600000

-- A caller can give permits back for this time after they were taken. The upstream's feedback about
-- a limit's key is kept for the same time.
local GIVE_BACK_US = 3600000000

-- Formats an integer. tostring writes only 14 digits, and '%.0f' takes five times as long as '%d'.
-- '%d' fails for a large number on a 32-bit Redis, so a large number is formatted in two parts.
local function int(x)
  if x < 1000000000 then return string.format(x > -1000000000 and '%d' or '%.0f', x) end
  local low = x % 1000000000
  return string.format('%d%09d', (x - low) / 1000000000, low)
end

-- Returns the name of a key in Redis: hg('limit', name) is hg:{scope}:limit:<name>, and hg('jobs')
-- is hg:{scope}:jobs. docs/design.md lists what each key holds.
local function hg(name, of)
  if of then return scope_prefix .. name .. ':' .. of end
  return scope_prefix .. name
end
