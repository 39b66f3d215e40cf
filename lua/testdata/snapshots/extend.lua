-- Extends a holder's leases on concurrency limits.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2…] limit, key, cost for each need
-- Returns 1, or 0 if one of the leases was lost
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
local holder = ARGV[1]

local held = 1
for i = 2, #ARGV, 3 do
  local kind, lease_us = unpack(call('HMGET', P .. 'limit:' .. ARGV[i], 'kind', 'lease_us'))
  if kind == 'concurrency' then
    local state = P .. 'm:concurrency:' .. ARGV[i] .. '|' .. ARGV[i + 1]
    local ends = int(now_us + tonumber(lease_us))
    for k = 1, tonumber(ARGV[i + 2]) do
      local permit = k == 1 and holder or holder .. '\n' .. k
      local was = call('ZSCORE', state, permit)
      if was and tonumber(was) > now_us then call('ZADD', state, ends, permit) else held = 0 end
    end
    local last = call('ZRANGE', state, -1, -1, 'WITHSCORES')[2]
    if last then call('PEXPIRE', state, int(ceil((tonumber(last) - now_us) / 1000) + 1000)) end
  end
end
return held
