-- @include limits

-- Returns the meter of a limit and a key, or nil where the limit does not exist
-- for this app. A meter answers: ready_at(k), the earliest microsecond at which
-- k more permits may be taken (k above the capacity: an estimate for those who
-- wait), left(), and full_at(), when it is as if never used. take(k) takes them, and
-- returns by what the meter knows them again: see charge.lua; beside it only the
-- second result changes anything: it stores what is there once more, for as long as
-- it matters now.
-- known is whether anybody knows when permits come back; windowed, whether they come back
-- by periods, so many in each; shut, whether the limit
-- is paused or the meter blocked; stale, whether Go must extend its calendar.
-- heard: whether the limiter is to be told how calls go; early: whether permits may be
-- taken before they exist by a call that begins when they do.
-- What only some meters need stands in its branch, so that no call makes
-- functions that it does not use.
-- `at` looks at the meter as of a later moment, if nothing is taken before.
local function load_meter(name, key, app, holder, at)
  local limit = limits[name]
  if not limit then
    local summary = name and call('HGET', hg('summaries'), name) -- a hand may have written what names none
    if not summary then return nil end
    local kind, rate, n, period_us, capacity, rest = string.match(summary, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
    limit = { kind = kind, rate = rate, n = n + 0, period_us = period_us + 0, capacity = capacity + 0, more = rest ~= '', load = false }
    if kind == 'funnel' or kind == 'token_bucket' then
      -- @include gcra
      limit.load = gcra
    elseif kind == 'sliding_log' then
      -- @include sliding_log
      limit.load = sliding_log
    elseif kind == 'sliding_window' then
      -- @include sliding_window
      limit.load = sliding_window
    elseif kind == 'fixed_window' then
      -- @include fixed_window
      limit.load = fixed_window
    else
      -- @include concurrency
      limit.load = concurrency
    end
    limits[name] = limit
  end
  local kind = limit.kind
  local paused, ends, record, margin_us, adapts = false, nil, nil, nil, nil
  if limit.more then
    -- @include rest
    paused, ends, record, margin_us, adapts = load_rest(name, key, app)
  end
  if paused == nil then return nil end
  local now_us = at or now_us

  local id = name .. '|' .. key
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, state = hg('m', kind .. ':' .. id), known = true, windowed = false, lanes = false, later = false, counts = false, called = 0,
    n = limit.n, period_us = limit.period_us, capacity = limit.capacity, rate = limit.rate, index = 0, cost = 0, reserved = 0, early = false,
    ready_at = false, take = false, left = false, full_at = false,
  }
  if record then
    -- @include override
    override(m, kind, record, tonumber(margin_us), now_us, adapts)
  end
  if adapts and adapts ~= '0' then m.heard = true end
  local keep = limit.load(m, now_us, holder)

  if paused or ends then
    -- @include shut
    shut(m, paused, ends)
  end
  if m.ends_us then
    -- @include ending
    ending(m, paused, function() return (load_meter(name, key, app, holder, m.ends_us)) end)
  end
  return m, keep
end
