-- @include scope

-- Sums up the parts of a sliding window that still count, from a text "part count part count …",
-- oldest first. If the width of parts has changed, an old part becomes the part of the new width
-- that contains the old part's last microsecond. Returns the sum, the number of the newest part or
-- nil for none, the newest part's count, and the older parts as a text.
local function sum_up(m, text, old_width, now_us)
  local width = ceil(m.period_us / 60)
  local sum, newest, count, older = 0, nil, 0, ''
  for part, taken in string.gmatch(text, '(%d+) (%d+)') do
    local b = tonumber(part)
    if old_width ~= width then b = floor(((b + 1) * old_width - 1) / width) end
    if (b + 1) * width - 1 + m.period_us > now_us then
      if newest and newest ~= b then
        older = older .. int(newest) .. ' ' .. int(count) .. ' '
        count = 0
      end
      newest, count, sum = b, count + taken, sum + taken
    end
  end
  return sum, newest, count, older
end

-- Returns the text that stores the results of sum_up as the meter's state.
local function parts_text(width, sum, newest, count, born_us, older)
  return int(width) .. ' ' .. int(sum) .. ' ' .. int(newest) .. ' ' .. int(count) .. ' ' .. int(born_us) .. ';' .. older
end

-- A sliding window in constant memory: the period has 60 parts, and a part counts until its last
-- microsecond has left the window. So the count is never too low.
-- State: "width sum part count born_us;part count …": the width of a part in microseconds, the sum of
-- all counts, the newest part, the time of the first call after no part counted, or after the state
-- was lost, and the older parts, oldest first. Permits that were taken before born_us cannot be given
-- back. A part is stored as its number and its count. Data of version 8 have no born_us. After a
-- reset, the state is only the first born_us that is valid. A call parses only the older parts that have left the window.
local function sliding_window(m, now_us)
  local n, period_us = m.n, m.period_us
  local width = ceil(period_us / 60)
  local sum, newest, count, born_us, older, first = 0, nil, 0, 0, '', 1 -- first: position in older of the first part that counts

  -- Returns the time at which all permits of part b have left the window.
  local function part_end(b) return (b + 1) * width - 1 + period_us end

  local state = call('GET', m.state)
  if state then
    local old_width
    old_width, sum, newest, count, born_us, older = string.match(state, '^(%d+) (%d+) (%d+) (%d+) ?(%d*);(.*)$')
    born_us = tonumber(old_width and born_us or string.match(state, '^%d+$') or nil) or 0
    if old_width and old_width + 0 == width then
      sum, newest, count = sum + 0, newest + 0, count + 0
      if part_end(newest) <= now_us then sum, newest, older = 0, nil, '' end
      while first < #older do
        local part, taken, after = string.match(older, '^(%d+) (%d+) ()', first)
        if not part then older = '' break end -- corrupt data
        if part_end(part + 0) > now_us then break end
        sum, first = sum - taken, after
      end
    else -- the period has changed, or the state is corrupt
      local text = old_width and older .. newest .. ' ' .. count or ''
      sum, newest, count, older = sum_up(m, text, old_width and old_width + 0 or 0, now_us)
    end
  end
  -- If the newest part is in the future, the clock has stepped back, and the part's start is used
  -- instead of the clock's time.
  local newest_start_us = newest and newest * width or 0
  local effective_now_us = newest_start_us > now_us and newest_start_us or now_us

  m.windowed = true
  function m.ready_at(k)
    if k == 0 then return now_us end
    local rest = (k - 1) % n + 1
    local wait = (k - rest) / n * period_us
    local missing = rest - (n - sum)
    local at = effective_now_us
    if missing > 0 then
      for part, taken in string.gmatch(string.sub(older, first), '(%d+) (%d+)') do
        missing, at = missing - taken, part_end(part + 0)
        if missing <= 0 then break end
      end
      if missing > 0 then at = part_end(newest) end
    end
    return math.min((at > effective_now_us and at or effective_now_us) + wait, MAX_INT)
  end

  local function store_state() call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + GRACE_MS)) end

  function m.take(k)
    local b = floor(effective_now_us / width)
    if not newest and now_us > born_us then born_us = now_us end
    if newest ~= b then
      if newest then older = older .. int(newest) .. ' ' .. int(count) .. ' ' end
      newest, count = b, 0
    end
    sum, count, older, first = sum + k, count + k, string.sub(older, first), 1
    local ttl_ms = ceil((part_end(b) - now_us) / 1000) + GRACE_MS
    call('SET', m.state, parts_text(width, sum, newest, count, born_us, older), 'PX', int(ttl_ms))
    return b
  end

  function m.left()
    if newest_start_us > now_us or sum >= n then return 0 end
    return n - sum
  end

  function m.full_at() return newest and part_end(newest) or now_us end

  return store_state
end
