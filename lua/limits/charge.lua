-- Settles the actual cost of a call. If the cost is higher than the permits taken, the script takes
-- the difference, and later calls wait longer. If the cost is lower, the script gives back the
-- difference, except permits whose return could exceed the limit's guarantee: permits that have
-- become free with time, permits taken before the last change of the rate or over an hour ago, and
-- permits that the meter's present state has not taken, because the meter was reset or lost since.
-- On a concurrency limit, the holder of a lease then has as many permits as the cost, at least 1.
-- A repeat of the same call changes nothing, and nor does a sending that arrives after a later call of
-- its caller.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] time at which the permits were taken, Unix microseconds
-- ARGV[4] number of permits that were taken
-- ARGV[5] actual cost
-- ARGV[6] mark: where the meter counted the permits, 0 if unknown. For a funnel or token bucket the
--   TAT (see gcra.lua) after the permits were taken; for a sliding window the number of the part of
--   the window; for a fixed window or a sliding log the time under which the permits were stored
-- ARGV[7] given: the field `given` of the state of a funnel or token bucket (see gcra.lua) when the
--   permits were taken; 0 for other kinds
-- ARGV[8] holder of the lease on a concurrency limit
-- ARGV[9] caller: ID of a caller that makes one call at a time
-- ARGV[10] number of the call; a caller's numbers grow, and only repeats of the call have the same
--   number
-- Returns a list of
--   limit     name of the limit if Go must extend its calendar and call again, else ''
--   now_us    Redis's clock, Unix microseconds
--   found     1, or 0 if the limit does not exist
--   delay_us  time by which the charge delays the next permits of a funnel or token bucket; 0 for
--             other kinds or without a charge
--   The list ends after found = 0. It ends after now_us if a calendar must be extended
-- @include gcra
-- @include fixed_window
-- @include leases
-- @include sliding_window
-- @include meter
-- @include change
-- @include note_call
local name, key, at_us, taken, cost = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local mark, given_before, holder, caller, call_number = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9], ARGV[10]

local m, store_state = load_meter(name, key)
if m and m.stale then return { name, now_us } end
local is_late = note_call(caller, call_number, call_number)
if not m then return { '', now_us, 0 } end
local kind, extra = m.kind, cost - taken

local result = { '', now_us, 1, 0 }
if extra > 0 and (kind == 'funnel' or kind == 'token_bucket') then result[4] = span(extra, m.n, m.period_us) end
if is_late then return result end

local function give_back(k)
  local since_us = math.max(tonumber(call('HGET', hg('limit', name), 'since_us') or nil) or now_us, m.since_us or 0)
  if mark == 0 or since_us > at_us or at_us > now_us or now_us - at_us >= GIVE_BACK_US or call('EXISTS', m.state) == 0 then return end
  if kind == 'sliding_log' then -- the log has stored at most n of the call's permits
    if taken > m.n then k = m.n - cost end
    if k > 0 then call('LREM', m.state, int(-k), int(mark)) end
  elseif kind == 'sliding_window' then
    local width = ceil(m.period_us / 60)
    local old_width, last, born_us, older = string.match(call('GET', m.state), '^(%d+) %d+ (%d+ %d+) ?(%d*);(.*)$')
    born_us = tonumber(born_us or nil) or 0
    if tonumber(old_width) ~= width or at_us < born_us then return end
    local text = string.gsub(older .. last, '(%d+) (%d+)', function(part, count)
      if tonumber(part) ~= mark then return nil end
      count = tonumber(count) - k
      return count > 0 and part .. ' ' .. int(count) or ''
    end)
    local sum, newest, newest_count, others = sum_up(m, text, width, now_us)
    if newest then call('SET', m.state, parts_text(width, sum, newest, newest_count, born_us, others), 'KEEPTTL') else call('SET', m.state, int(born_us), 'KEEPTTL') end
  elseif kind == 'fixed_window' then
    local last, count, born_us = string.match(call('GET', m.state), '^(%d+) (%d+) ?(%d*)$')
    local _, starts = window_starts(m)
    last, count, born_us = tonumber(last), tonumber(count), tonumber(born_us or nil) or 0
    if not last or mark < born_us then return end
    local start = starts(last > now_us and last or now_us, 0)
    if mark < start or last < start then return end
    call('SET', m.state, int(last) .. ' ' .. int(count > k and count - k or 0) .. ' ' .. int(born_us), 'KEEPTTL')
  else
    -- Without the k permits, the meter might have been idle for some time since at_us: with all
    -- permits free, the TAT moves with the clock. So the script moves the TAT back by the time of k
    -- permits less the idle time. It uses the smaller of two upper bounds of the idle time:
    -- - Without the k permits, the TAT would be at most later_us ahead of `now`: now_us, or
    --   begins_us if it is later. later_us is the most time that later calls have added to the TAT:
    --   its growth since the mark, plus all permits given back since.
    -- - The idle time lies between at_us and now. Calls that overlap form a group. The group's idle
    --   time is at most the time since group_start, when the group's first call took its permits,
    --   less group_idle, which the script has subtracted already for other calls of the group.
    -- A new group starts if the call took its permits after group_end, when a call gave permits
    -- back last. It also starts if the group's bound is the time of k permits or more, but the time
    -- since at_us is shorter.
    local born, tat, fraction, rate, given, begins, group_start, group_end, group_idle =
      string.match(call('GET', m.state), '^(%S+) (%d+) (%d+) (%d+ %d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*) ?(%d*)$')
    tat, fraction, given, begins = tonumber(tat), tonumber(fraction), tonumber(given) or 0, tonumber(begins) or 0
    if rate ~= m.rate or at_us < parse_born(born) or tat < now_us or tat == MAX_INT or given < given_before then return end
    local given_us, min_fraction = span(given - given_before, m.n, m.period_us)
    local later_us = tat + (fraction > 0 and 1 or 0) - mark + given_us
    if later_us < 0 then return end
    local us, over = span(k, m.n, m.period_us)
    local new_tat, new_fraction, now = tat - us, fraction - over, math.max(now_us, begins)
    if new_fraction < 0 then new_tat, new_fraction = new_tat - 1, new_fraction + m.n end
    if min_fraction > new_fraction then later_us = later_us + 1 end
    group_start, group_end, group_idle = math.min(at_us, tonumber(group_start) or 0), tonumber(group_end) or 0, tonumber(group_idle) or 0
    if at_us > group_end or now - group_start - group_idle >= us and now - at_us < us then group_start, group_idle = at_us, 0 end
    local idle = math.max(0, math.min(now + later_us - new_tat, now - group_start - group_idle))
    new_tat = new_tat + idle
    if new_tat < tat or new_tat == tat and new_fraction < fraction then
      tat, fraction, given = new_tat, new_fraction, given + k
    end
    local words = { born, int(tat), int(fraction), rate, int(given), int(begins), int(group_start), int(now), int(group_idle + math.min(idle, us)) }
    call('SET', m.state, table.concat(words, ' '))
    gcra(m, now_us)() -- sets the expiry of the key
  end
end

-- Takes k more permits, even if they are not free. A sliding log stores an entry for each permit,
-- but at most n entries more than permits are free.
local function charge(k)
  if kind ~= 'sliding_log' then return m.take(k) end
  local last = tonumber(call('LINDEX', m.state, -1) or nil) or 0
  local at, room = int(last > now_us and last or now_us), m.n + (m.open_left or m.left)()
  for _ = 1, math.min(k, room) do call('RPUSH', m.state, at) end
  store_state()
end

if kind == 'concurrency' then
  local sets = lease_sets(m.state)
  local held, until_us = held_by(sets, holder)
  if held > 0 then set_held(sets, holder, cost > 0 and cost or 1, until_us) end
elseif extra > 0 then
  charge(extra)
elseif extra < 0 then
  give_back(-extra)
end
if is_contended(m.id) then publish_change('meter', m.id) end
return result
