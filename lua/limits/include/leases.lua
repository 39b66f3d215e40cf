-- @include scope

-- The leases of a concurrency meter are ZSETs of holders, scored by the end of the lease. There is
-- a set for each binary digit of the number of permits: a holder of 5 permits is in the sets of 1
-- and of 4. So a lease of any cost has few members, and a sum needs few ZCOUNTs. The first lease of
-- several permits writes the key state .. '\n'. Without that key, only the set of 1 exists.
local function lease_sets(state)
  local sets = { state }
  if call('EXISTS', state .. '\n') == 1 then
    for i = 1, 23 do sets[i + 1] = state .. '\n' .. int(i) end
  end
  return sets
end

-- Returns the number of permits of a holder, and the end of the holder's lease. Both are 0 if the
-- holder has no lease or the lease has ended.
local function held_by(sets, holder)
  local held, weight, until_us = 0, 1, 0
  for i = 1, #sets do
    local ends = tonumber(call('ZSCORE', sets[i], holder) or nil) or 0
    if ends > now_us then held, until_us = held + weight, ends end
    weight = weight * 2
  end
  return held, until_us
end

-- Sets the number of permits that a holder has until a time to k. If k is 0, the holder gives all
-- permits back. Deletes up to 100 ended leases of each set. Returns the latest end of a lease of
-- any holder, or now if no lease is left.
local function set_held(sets, holder, k, until_us)
  local state, last = sets[1], now_us
  if k > 1 and #sets == 1 then
    call('SET', state .. '\n', '1')
    sets = lease_sets(state)
  end
  for i = 1, #sets do
    local bit = k % 2
    k = (k - bit) / 2
    if bit == 1 then call('ZADD', sets[i], int(until_us), holder) else call('ZREM', sets[i], holder) end
    local late = call('ZCOUNT', sets[i], '-inf', int(now_us - GRACE_MS * 1000))
    if late > 0 then call('ZREMRANGEBYRANK', sets[i], 0, late > 100 and 99 or late - 1) end
    local ends = tonumber(call('ZRANGE', sets[i], -1, -1, 'WITHSCORES')[2] or nil) or 0
    if ends > last and ends < MAX_INT then last = ends end
  end
  local ttl_ms = int(ceil((last - now_us) / 1000) + GRACE_MS)
  for i = 1, #sets do call('PEXPIRE', sets[i], ttl_ms) end
  if #sets > 1 then call('PEXPIRE', state .. '\n', ttl_ms) end
  return last
end
