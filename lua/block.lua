-- Holds one meter shut until a moment, or opens it again.
-- Touches: blocked (rw), changelog (w), changes (w), limit (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] microsecond until which it is shut; one in the past opens it
-- ARGV[4] who says so
-- Returns 1, or 0 if there is no such limit
-- @include change
-- @include summary
-- @include note
local name, key, until_us, by = ARGV[1], ARGV[2], math.min(tonumber(ARGV[3]), FAR), ARGV[4]

local limit, blocked = hg('limit', name), hg('blocked', name)
if call('EXISTS', limit) == 0 then return 0 end
if until_us > now_us then
  call('ZADD', blocked, int(until_us), key)
  note('blocked', name, by, 'key', key, 'until', int(until_us))
elseif call('ZREM', blocked, key) == 1 then
  note('unblocked', name, by, 'key', key)
end

-- The limit says until when any of its meters is shut. What has ended goes, a
-- hundred at a time.
local late = call('ZCOUNT', blocked, '-inf', int(now_us - GRACE * 1000))
if late > 0 then call('ZREMRANGEBYRANK', blocked, 0, late > 100 and 99 or late - 1) end
local last = call('ZRANGE', blocked, -1, -1, 'WITHSCORES')[2]
if last then
  call('HSET', limit, 'blocked_us', int(tonumber(last)))
  call('PEXPIRE', blocked, int(ceil((tonumber(last) - now_us) / 1000) + GRACE))
else
  call('HDEL', limit, 'blocked_us')
end
store_summary(name)
changed('meter', name .. '|' .. key)
return 1
