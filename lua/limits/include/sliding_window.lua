-- @include scope

-- A sliding window in bounded memory: the period in 60 parts, each counted
-- whole until its last microsecond has left the window, so never over.
-- State: "width part count part count …", oldest part first.
local function sliding_window(m, now_us)
  local n, period_us = m.n, m.period_us
  local width = ceil(period_us / 60)
  local parts, counts, sum = {}, {}, 0

  -- When the last permit that part b may hold has left the window.
  local function leaves(b) return (b + 1) * width - 1 + period_us end

  local state = call('GET', m.state)
  if state then
    local was_width, rest = string.match(state, '^(%d+)(.*)$')
    was_width = tonumber(was_width)
    for part, taken in string.gmatch(rest, '(%d+) (%d+)') do
      local b, count = tonumber(part), tonumber(taken)
      -- The limit was changed: a part goes where its last microsecond lies.
      if was_width ~= width then b = floor(((b + 1) * was_width - 1) / width) end
      if leaves(b) > now_us then
        if parts[#parts] == b then
          counts[#parts] = counts[#parts] + count
        else
          parts[#parts + 1], counts[#counts + 1] = b, count
        end
        sum = sum + count
      end
    end
  end
  -- A part in the future means that the clock stepped back: a meter's time does
  -- not.
  local behind = #parts > 0 and parts[#parts] * width or 0
  local floor_us = behind > now_us and behind or now_us

  m.windowed = true
  function m.ready_at(k)
    if k == 0 then return now_us end
    local within = (k - 1) % n + 1
    local wait = (k - within) / n * period_us
    local missing = within - (n - sum)
    local at = floor_us
    for i = 1, #parts do
      if missing <= 0 then break end
      missing = missing - counts[i]
      at = leaves(parts[i])
    end
    return math.min((at > floor_us and at or floor_us) + wait, FAR)
  end

  local function keep() call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + GRACE + (m.longer_ms or 0))) end

  function m.take(k)
    local b = floor(floor_us / width)
    if parts[#parts] == b then
      counts[#parts] = counts[#parts] + k
    else
      parts[#parts + 1], counts[#counts + 1] = b, k
    end
    sum = sum + k
    local text = { int(width) }
    for i = 1, #parts do text[i + 1] = int(parts[i]) .. ' ' .. int(counts[i]) end
    local ttl_ms = ceil((leaves(b) - now_us) / 1000) + GRACE + (m.longer_ms or 0)
    call('SET', m.state, table.concat(text, ' '), 'PX', int(ttl_ms))
    return b
  end

  function m.left()
    if behind > now_us or sum >= n then return 0 end
    return n - sum
  end

  function m.full_at() return #parts > 0 and leaves(parts[#parts]) or now_us end

  return keep
end
