-- Charges what a call has truly cost.
-- More is taken at once, and all later calls wait for it; less is given back, but
-- nothing that could let more through than the limit guarantees: what has come back
-- by itself meanwhile, and what was taken before the key's rate changed, or an hour
-- ago. The same call again changes nothing.
-- Touches: admitted (w), blocked (r), changes (w), contended (r), limit (r),
--   m (rw), overrides (r), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] when it was taken, in microseconds
-- ARGV[4] permits that were taken
-- ARGV[5] permits that it has cost
-- ARGV[6] until when a funnel owed then, in microseconds, or 0
-- ARGV[7] holder of a lease on a concurrency limit
-- ARGV[8] caller: a name of who makes one call at a time
-- ARGV[9] number of its call, which only repeats of this very call share
-- Returns 0; -1 if there is no such limit; or the time in microseconds where its
--   calendar must be extended first
-- @include gcra
-- @include fixed_window
-- @include leases
-- @include meter
-- @include change
local name, key, at_us, taken, cost = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local owed_us, holder, caller, number = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]

local m, keep = load_meter(name, key)
if not m then return -1 end
if m.stale then return now_us end
if call('SET', hg('admitted', caller), number, 'PX', int(GRACE), 'GET') == number then return 0 end
local kind = string.match(m.state, '^[a-z_]+', #hg('m') + 2)
local more = cost - taken

-- Of a funnel, what was taken since stays owed in any case: as much as it owes more
-- now than it did then, or than the call alone would have had it owe.
local function give_back_rate(k)
  keep()
  local tat, fraction = string.match(call('GET', m.state), '^(%d+) (%d+) ')
  tat, fraction = tonumber(tat), tonumber(fraction)
  if owed_us == 0 then owed_us = at_us + (span(taken, m.n, m.period_us)) end
  local least = now_us + (tat > owed_us and tat - owed_us or 0)
  if least >= tat then return end
  local us, over = span(k, m.n, m.period_us)
  local less, rest = tat - us, fraction - over
  if rest < 0 then less, rest = less - 1, rest + m.n end
  if less < least then less, rest = least, fraction end
  call('SET', m.state, string.format('%.0f %.0f ', less, rest) .. m.rate, 'KEEPTTL')
end

local function give_back_part(k)
  local width = ceil(m.period_us / 60)
  local was, rest = string.match(call('GET', m.state), '^(%d+)(.*)$')
  if tonumber(was) ~= width then return end
  local its = int(floor(at_us / width))
  rest = string.gsub(rest, ' (%d+) (%d+)', function(part, count)
    if part ~= its then return nil end
    count = tonumber(count) - k
    return count > 0 and ' ' .. part .. ' ' .. int(count) or ''
  end)
  if rest == '' then call('DEL', m.state) else call('SET', m.state, was .. rest, 'KEEPTTL') end
end

local function give_back_window(k)
  local last, count = string.match(call('GET', m.state), '^(%d+) (%d+)$')
  local _, starts = windows(m)
  last, count = tonumber(last), tonumber(count)
  local start = starts(last > now_us and last or now_us, 0)
  if at_us < start or last < start then return end
  call('SET', m.state, int(last) .. ' ' .. int(count > k and count - k or 0), 'KEEPTTL')
end

local function give_back(k)
  local since_us = math.max(tonumber(call('HGET', hg('limit', name), 'since_us')), m.since_us or 0)
  if since_us > at_us or at_us > now_us or now_us - at_us >= 3600000000 or call('EXISTS', m.state) == 0 then return end
  if kind == 'sliding_log' then
    call('LREM', m.state, int(-k), int(at_us))
  elseif kind == 'sliding_window' then
    give_back_part(k)
  elseif kind == 'fixed_window' then
    give_back_window(k)
  else
    give_back_rate(k)
  end
end

-- A sliding log does not keep a debt of more than all its permits.
local function charge(k)
  if kind ~= 'sliding_log' then return m.take(k) end
  local last = tonumber(call('LINDEX', m.state, -1) or 0)
  local at, room = int(last > now_us and last or now_us), m.n + (m.open_left or m.left)()
  for _ = 1, math.min(k, room) do call('RPUSH', m.state, at) end
  keep()
end

if kind == 'concurrency' then
  local sets = lease_sets(m.state)
  local held, until_us = held_by(sets, holder)
  if held > 0 then hold(sets, holder, cost > 0 and cost or 1, until_us) end
elseif more > 0 then
  charge(more)
elseif more < 0 then
  give_back(-more)
end
if waited_for(m.id) then changed('meter', m.id) end
return 0
