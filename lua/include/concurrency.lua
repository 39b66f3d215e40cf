-- Concurrency: at most n permits held at once, each a lease that ends unless
-- its holder extends it.
-- State: ZSET of permits: holder, or holder\n2, holder\n3 … for a cost above 1,
-- each with the microsecond its lease ends. The holder's own permits do not
-- count against it, so asking twice is asking once.
local n = m.capacity
m.lease_us = tonumber(call('HGET', m.limit, 'lease_us'))
call('ZREMRANGEBYSCORE', m.state, '-inf', int(now_us))
local live = call('ZCARD', m.state)
if live > 0 and m.holder and call('ZSCORE', m.state, m.holder) then
  live = live - 1
  local i = 2
  while call('ZSCORE', m.state, m.holder .. '\n' .. i) do live, i = live - 1, i + 1 end
end

function m.ready_at(k)
  if k == 0 or live + k <= n then return now_us end
  if live == 0 then return now_us + m.lease_us end
  local i = math.min(live + k - n, live)
  local permit = call('ZRANGE', m.state, i - 1, i - 1, 'WITHSCORES')
  return permit[2] and tonumber(permit[2]) or now_us + m.lease_us
end

function m.take(k)
  local ends = int(now_us + m.lease_us)
  call('ZADD', m.state, ends, m.holder)
  for i = 2, k do call('ZADD', m.state, ends, m.holder .. '\n' .. i) end
  while call('ZREM', m.state, m.holder .. '\n' .. int(k + 1)) == 1 do k = k + 1 end
  live = live + k
  call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + 1000))
end

function m.left()
  return live < n and n - live or 0
end

function m.full_at()
  local last = call('ZRANGE', m.state, -1, -1, 'WITHSCORES')
  return last[2] and tonumber(last[2]) or now_us
end
