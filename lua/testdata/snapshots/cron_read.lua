-- Reads what is known of schedules, and the time.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] schedules
-- Touches: cron:<schedule> r
-- Returns the time in microseconds, then for each schedule its hash as HGETALL
--   gives it, empty for one that is not known
-- What every script starts with: the scope's key prefix and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- The only way a number becomes text: tostring would keep 14 digits of 16.
local function int(x) return string.format('%.0f', x) end

local reply = { int(now_us) }
for i = 1, #ARGV do reply[i + 1] = call('HGETALL', P .. 'cron:' .. ARGV[i]) end
return reply
