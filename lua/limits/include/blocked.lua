-- @include summary
-- @include change

-- Holds a meter shut until a moment; one in the past opens it.
local function shut_until(name, key, until_us)
  local limit, blocked = hg('limit', name), hg('blocked', name)
  if until_us > now_us then call('ZADD', blocked, int(until_us), key) else call('ZREM', blocked, key) end

  -- The limit says until when any of its meters is shut. What has ended goes, a
  -- hundred at a time.
  local late = call('ZCOUNT', blocked, '-inf', int(now_us - GRACE * 1000))
  if late > 0 then call('ZREMRANGEBYRANK', blocked, 0, late > 100 and 99 or late - 1) end
  local last = call('ZRANGE', blocked, -1, -1, 'WITHSCORES')[2]
  if last then
    last = math.min(tonumber(last) or FAR, FAR)
    call('HSET', limit, 'blocked_us', int(last))
    call('PEXPIRE', blocked, int(ceil((last - now_us) / 1000) + GRACE))
  else
    call('HDEL', limit, 'blocked_us')
  end
  store_summary(name)
end

-- Holds a meter shut until a moment, if it would open before: an upstream's
-- answer says so. That is for as long as the limit allows an answer to, by default a
-- day, or the period where that is longer.
local function shut_longer(name, key, until_us)
  local longest, per_us = unpack(call('HMGET', hg('limit', name), 'max_block_us', 'per_us'))
  longest = tonumber(longest or nil) or math.max(86400000000, tonumber(per_us or nil) or 0)
  local ends = tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0
  until_us = math.min(until_us, now_us + longest, FAR)
  if until_us <= math.max(ends, now_us) then return end
  shut_until(name, key, until_us)
  note('blocked', name, 'upstream', 'key', key, 'until', int(until_us))
end
