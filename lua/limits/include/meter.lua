-- @include scope

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
  local summary = call('HGET', hg('summaries'), name)
  if not summary then return nil end
  local kind, rate, n, period_us, capacity, rest = string.match(summary, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
  local paused, ends, record, margin_us, adapts = false, nil, nil, nil, nil
  if rest ~= '' then
    -- @include rest
    paused, ends, record, margin_us, adapts = load_rest(name, key, app)
  end
  if paused == nil then return nil end
  local now_us = at or now_us

  local id = name .. '|' .. key
  local keep
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, state = hg('m', kind .. ':' .. id), known = true, windowed = false, lanes = false, later = false, counts = false, called = 0,
    n = tonumber(n), period_us = tonumber(period_us), capacity = tonumber(capacity), rate = rate, index = 0, cost = 0, reserved = 0, early = false,
    ready_at = false, take = false, left = false, full_at = false,
  }
  if record then
    -- @include override
    override(m, kind, record, tonumber(margin_us), now_us, adapts)
  end
  if adapts and adapts ~= '0' then m.heard = true end
  if kind == 'funnel' or kind == 'token_bucket' then
    -- @include gcra
    keep = gcra(m, now_us)
  elseif kind == 'sliding_log' then
    -- @include sliding_log
    keep = sliding_log(m, now_us)
  elseif kind == 'sliding_window' then
    -- @include sliding_window
    keep = sliding_window(m, now_us)
  elseif kind == 'fixed_window' then
    -- @include fixed_window
    keep = fixed_window(m, now_us)
  else
    -- @include concurrency
    concurrency(m, now_us, holder)
  end

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
