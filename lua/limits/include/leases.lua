-- @include scope

-- The leases of a concurrency meter: ZSETs of holders by the microsecond at which the lease ends. A
-- holder of 5 permits is in the sets of 1 and of 4, so any cost is a few members, and the sum a few
-- counts. All sets but the first exist only if a lease of several permits was given: a mark beside
-- them says so.
local function lease_sets(state)
  local sets = { state }
  if call('EXISTS', state .. '\n') == 1 then
    for i = 1, 23 do sets[i + 1] = state .. '\n' .. int(i) end
  end
  return sets
end

-- Returns how many permits a holder has, and until when; 0 if its lease has ended.
local function held_by(sets, holder)
  local held, weight, until_us = 0, 1, 0
  for i = 1, #sets do
    local ends = tonumber(call('ZSCORE', sets[i], holder) or nil) or 0
    if ends > now_us then held, until_us = held + weight, ends end
    weight = weight * 2
  end
  return held, until_us
end

-- Makes a holder hold exactly k permits until a time; k = 0 gives back what it holds. Leases that
-- have ended go after a grace, a hundred at a time. Returns when the last lease ends.
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
