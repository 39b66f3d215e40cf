-- @include summary
-- @include change

-- Blocks a meter until a time. A time in the past unblocks the meter.
local function block_until(name, key, until_us)
  local limit, blocked = hg('limit', name), hg('blocked', name)
  if until_us > now_us then call('ZADD', blocked, int(until_us), key) else call('ZREM', blocked, key) end

  -- Deletes up to 100 old blocks. The limit's field blocked_us is the latest end of its blocks.
  local late = call('ZCOUNT', blocked, '-inf', int(now_us - GRACE_MS * 1000))
  if late > 0 then call('ZREMRANGEBYRANK', blocked, 0, late > 100 and 99 or late - 1) end
  local last = call('ZRANGE', blocked, -1, -1, 'WITHSCORES')[2]
  if last then
    last = math.min(tonumber(last) or MAX_INT, MAX_INT)
    call('HSET', limit, 'blocked_us', int(last))
    call('PEXPIRE', blocked, int(ceil((last - now_us) / 1000) + GRACE_MS))
  else
    call('HDEL', limit, 'blocked_us')
  end
  store_summary(name)
end

-- Blocks a meter because of an upstream's reply. A present block that ends later stays as it is. A
-- block lasts at most max_block. The default of max_block is the longer of a day and the period.
local function block_longer(name, key, until_us)
  local longest, per_us = unpack(call('HMGET', hg('limit', name), 'max_block_us', 'per_us'))
  longest = tonumber(longest or nil) or math.max(86400000000, tonumber(per_us or nil) or 0)
  local ends = tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0
  until_us = math.min(until_us, now_us + longest, MAX_INT)
  if until_us <= math.max(ends, now_us) then return end
  block_until(name, key, until_us)
  log_change('blocked', name, 'upstream', 'key', key, 'until', int(until_us))
end
