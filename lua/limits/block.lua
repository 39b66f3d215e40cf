-- Blocks a meter until a time, or unblocks the meter.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] end of the block, Unix microseconds; a time in the past unblocks the meter
-- ARGV[4] actor, who is named in the changelog
-- Returns 1, or 0 if the limit does not exist
-- @include change
-- @include blocked
local name, key, until_us, actor = ARGV[1], ARGV[2], math.min(tonumber(ARGV[3]), MAX_INT), ARGV[4]

if call('EXISTS', hg('limit', name)) == 0 then return 0 end
if until_us > now_us then
  log_change('blocked', name, actor, 'key', key, 'until', int(until_us))
elseif call('ZSCORE', hg('blocked', name), key) then
  log_change('unblocked', name, actor, 'key', key)
end
block_until(name, key, until_us)
publish_change('meter', name .. '|' .. key)
return 1
