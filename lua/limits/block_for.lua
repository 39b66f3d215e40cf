-- Blocks meters for a duration from now on. A meter whose block ends later keeps that block.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] duration, microseconds
-- ARGV[2…] limit, key of each meter
-- Returns the number of meters whose limit exists
-- @include change
-- @include blocked
local for_us = tonumber(ARGV[1])

local found = 0
for i = 2, #ARGV, 2 do
  if call('EXISTS', hg('limit', ARGV[i])) == 1 then
    found = found + 1
    block_longer(ARGV[i], ARGV[i + 1], now_us + for_us)
    publish_change('meter', ARGV[i] .. '|' .. ARGV[i + 1])
  end
end
return found
