-- @include limits
-- @include leases

-- Concurrency: holders have at most n permits at once. Each permit is a lease, which ends if its
-- holder does not extend it. The calling holder's own permits do not count against its call, so a
-- repeat of an allowed call is allowed again.
-- State: the ZSETs of leases.lua.
local function concurrency(m, now_us, holder)
  local n, sets = m.capacity, lease_sets(m.state)
  local limit = limits[m.name]
  limit.lease_us = limit.lease_us or tonumber(call('HGET', hg('limit', m.name), 'lease_us') or nil)
  m.lease_us = limit.lease_us
  if not m.lease_us then
    m.incomplete = true
    return
  end
  m.known = false

  -- Returns the number of permits whose leases end after now and not later than `at`. Leases with
  -- an infinite end do not count; no script writes them.
  local function ending_by(at)
    local sum, weight = 0, 1
    for i = 1, #sets do
      sum = sum + weight * call('ZCOUNT', sets[i], '(' .. int(now_us), at)
      weight = weight * 2
    end
    return sum
  end
  local held_by_others, own, own_until = ending_by('(9007199254740992'), 0, 0
  if held_by_others > 0 and holder then own, own_until = held_by(sets, holder) end
  held_by_others = held_by_others - own
  m.held_us = own > 0 and own_until - now_us or 1 -- what is left of the holder's lease

  function m.full_at()
    local last = now_us
    for i = 1, #sets do
      local ends = tonumber(call('ZRANGE', sets[i], -1, -1, 'WITHSCORES')[2] or nil) or 0
      if ends > last then last = math.min(ends, MAX_INT) end
    end
    return last
  end

  -- Finds by binary search the first time at which k permits are free. If the request is larger
  -- than n, it finds the time at which all present leases have ended.
  function m.ready_at(k)
    if k == 0 or held_by_others + k <= n then return now_us end
    if held_by_others == 0 then return now_us + m.lease_us end
    local missing = math.min(held_by_others + k - n, held_by_others)
    local low, high = now_us, m.full_at()
    while low < high do
      local middle = floor((low + high) / 2)
      local ended = ending_by(int(middle)) - (own_until <= middle and own or 0)
      if ended >= missing then high = middle else low = middle + 1 end
    end
    return low
  end

  function m.take(k)
    local last = set_held(sets, holder, k, math.max(now_us + m.lease_us, own_until)) -- never earlier than promised
    held_by_others = held_by_others + k
    m.full_at = function() return last end
  end

  function m.left() return held_by_others < n and n - held_by_others or 0 end
end
