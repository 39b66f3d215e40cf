-- Gives lanes their turns, in the order given: the first waiting job of a lane
-- is called if every meter it needs is ready, and its permits are reserved for
-- it; or nothing of it happens. Only meters admit: who gives turns wrongly makes
-- them unjust, never too many.
-- Touches: blocked (r), called (rw), contended (w), demand (w), full (w),
--   jobs (r), lane (rw), lanes (rw), limit (r), m (rw), meters (rw),
--   overrides (r), patience (w), tickets (w), turns (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that gives turns
-- ARGV[2] how far ahead a job may be called, in microseconds
-- ARGV[3…] lane, 1 if it may be called ahead, permits that older lanes hold of
--   each of its meters, separated by commas, for each turn
-- Returns {now_us, names of limits whose calendar must be extended, then for each
--   turn {outcome, job, from when and until when its permits are reserved}, then
--   for each lane {how many are called, 1 if its next job is never called ahead,
--   what that needs: cost, ready_at_us, known, worth_us, shut for each meter}}; {0}
--   where another process gives turns
-- What every script starts with: the scope's keys and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- After a meter's id: how many lanes take turns there.
local LANES = '\n'

-- Times beyond this, in the year 2255, are this: to here numbers are exact.
local FAR = 9007199254740992

-- A meter's key lives so much longer than its state matters, in milliseconds:
-- a clock that steps back by less finds it.
local GRACE = 60000

-- The only way a number becomes text: tostring would keep 14 digits of 16, and
-- '%.0f' takes five times as long. In two parts it fits a Redis of 32 bits too.
local function int(x)
  if x < 1000000000 then return string.format(x > -1000000000 and '%d' or '%.0f', x) end
  local low = x % 1000000000
  return string.format('%d%09d', (x - low) / 1000000000, low)
end

-- The one home of the layout: hg('limit', name) is the key hg:{scope}:limit:<name>.
--   limit:<name>       hash    a limit's definition, and what changes beside it
--   limits             set     their names
--   deleted            hash    limits that were deleted on purpose, and their last summary
--   blocked:<name>     zset    keys of a limit by the microsecond until which they are shut
--   overrides:<name>   hash    what differs for single keys of a limit: key -> record.lua's words
--   ending:<name>      zset    those of them that end, by the microsecond at which they do
--   m:<kind>:<meter>   by kind a meter's state; <meter> is <name>|<key>
--   cron:<schedule>    hash    what is known of a schedule: its last tick, and one half done
--   crawls             zset    crawls by the microsecond at which a job took a URL last
--   crawl:<name>       hash    a crawl's run, and the microsecond at which it began
--   crawl_seen:<run>   hash    URL -> its state, depth and job; <run> is <name>|<run>
--   crawl_hosts:<run>  hash    <host>|<state> -> how many URLs; of all without a host
--   crawl_pages:<name> hash    URL -> what the next run wants to know of the page
--   crawl_before:<name> hash   the same of pages that no run has met lately
--   robots:<origin>    hash    an origin's robots.txt, and when it was fetched
--   robots_busy:<origin> string that somebody fetches it
--   cell:<key>         string  the meter of a limit that is given with the call
--   changes            string  how many changes of limits and meters there were
--   changelog          stream  who changed what, for people
--   wake               channel words to the process that gives turns
--   admitted:<caller>  string  the number of a caller's last call that was allowed, settled, deleted or written down
--   jobs               hash    job -> its ticket, costs, lane
--   seq                string  the last number given
--   demand             hash    meter -> permits wanted by all that wait
--   meters             hash    meter -> permits reserved for called jobs; meter .. LANES -> how many lanes take turns there
--   lane:<lane>        zset    waiting jobs by ticket
--   called:<lane>      zset    called jobs by the microsecond until which permits are reserved
--   lanes              zset    lanes by number
--   tickets            hash    lane -> the last ticket given
--   full               set     lanes of which as many are called as may be
--   contended          hash    meter -> number of the last lane that marked it
--   patience           zset    jobs by the microsecond at which they must have run
--   turns              string  the process that gives turns
--   asynq              string  the asynq Redis whose jobs wait: a name of its data, its address
--   history            stream  what each process did in a second: a summary
--   totals             hash    queue, task type and outcome -> how many jobs
--   survey             string  what waits, by limit, as it was found a short while ago
--   surveyor           string  the process that looks at what waits
--   epoch              string  set once; gone where Redis has lost its data
local function hg(name, of)
  if of then return P .. name .. ':' .. of end
  return P .. name
end

-- A lane's queue and the ids of its meters.
local function parse_lane(lane)
  local queue, rest = string.match(lane, '^([^\n]*)\n(.*)$')
  local ids = {}
  for id in string.gmatch(rest, '[^\n]+') do ids[#ids + 1] = id end
  return queue, ids
end

-- Adds to a counter in a hash, which at zero leaves nothing behind.
local function count(counters, id, change)
  local n = call('HINCRBY', counters, id, int(change))
  if n <= 0 then call('HDEL', counters, id) end
end

-- Returns the meter of a limit and a key, or nil where the limit does not exist
-- for this app. A meter answers: ready_at(k), the earliest microsecond at which
-- k more permits may be taken (k above the capacity: an estimate for those who
-- wait), left(), and full_at(), when it is as if never used. take(k) takes them;
-- beside it only the second result changes anything: it stores what is there
-- once more, for as long as it matters now.
-- known is whether anybody knows when permits come back; shut, whether the limit
-- is paused or the meter blocked; stale, whether Go must extend its calendar.
-- heard: whether the limiter is to be told how calls go.
-- What only some meters need stands in its branch, so that no call makes
-- functions that it does not use.
-- `at` looks at the meter as of a later moment, if nothing is taken before.
local function load_meter(name, key, app, holder, at)
  local summary = call('HGET', hg('limit', name), 'summary')
  if not summary then return nil end
  local kind, rate, n, period_us, capacity, rest = string.match(summary, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
  local paused, ends, record, margin_us, adapts = false, nil, nil, nil, nil
  if rest ~= '' then

    -- What a limit has beside its summary: whether it is paused, and until when the
    -- meter is shut, if an upstream's answer shut it; and the key's record, if it has
    -- one, with the limit's margin and, if it adapts, the latency it wants. Returns nil where the limit
    -- is not for the app.
    local function load_rest(name, key, app)
      local apps, paused, blocked_us, overrides, margin_us, adapts =
        unpack(call('HMGET', hg('limit', name), 'apps', 'paused', 'blocked_us', 'overrides', 'margin_us', 'adapt_latency_us'))
      if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
        return nil
      end
      local ends
      if blocked_us and tonumber(blocked_us) > now_us then
        ends = tonumber(call('ZSCORE', hg('blocked', name), key) or 0)
        ends = ends > now_us and ends or nil
      end
      local record = overrides and call('HGET', hg('overrides', name), key)
      return paused and true or false, ends, record, margin_us, adapts
    end
    paused, ends, record, margin_us, adapts = load_rest(name, key, app)
  end
  if paused == nil then return nil end
  local now_us = at or now_us

  local id = name .. '|' .. key
  local keep
  local m = { -- all its 16 fields at once, so that the table is made in its full size
    id = id, name = name, state = hg('m', kind .. ':' .. id), known = true, lanes = 1,
    n = tonumber(n), period_us = tonumber(period_us), capacity = tonumber(capacity), rate = rate, index = 0, cost = 0, reserved = 0,
    ready_at = false, take = false, left = false, full_at = false,
  }
  if record then

    -- Has a meter count as the record of its key says at a moment: with another rate
    -- or capacity, for the kind that it was given for and until it ends, and at a
    -- share of the rate, in millionths, where the other side bears no more and the
    -- limit adapts to that. since_us
    -- is when the key's rate changed last. Until the end, the meter's state lives for
    -- as long as it would matter under the limit's own rate.
    local function override(m, kind, record, margin_us, at, adapts)
      local of, n, per_us, capacity, ends_us, since_us, share, refused =
        string.match(record, '^%S+ (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
      n, capacity, ends_us, share = tonumber(n), tonumber(capacity), tonumber(ends_us), tonumber(share)
      m.since_us, m.heard = tonumber(since_us), refused ~= '0' or share < 1000000
      if of == kind and (ends_us == 0 or ends_us > at) then
        local interval_us = m.period_us / m.n
        if ends_us > 0 then
          m.ends_us = ends_us
          m.longer_ms = ceil((ends_us - at + m.capacity * m.period_us / m.n) / 1000)
        end
        if n > 0 then
          m.n = n
          if kind ~= 'fixed_window' then m.period_us = tonumber(per_us) + margin_us end
          if kind ~= 'funnel' and kind ~= 'token_bucket' then m.capacity = n end
        end
        if capacity > 0 then m.capacity = capacity end
        if ends_us > 0 then m.slower = interval_us / (m.period_us / m.n) end
      elseif ends_us > m.since_us and ends_us <= at then
        m.since_us = ends_us
      end
      if adapts and share < 1000000 then m.period_us = math.min(ceil(m.period_us * 1000000 / share), FAR) end
      m.rate = int(m.n) .. ' ' .. int(m.period_us)
    end
    override(m, kind, record, tonumber(margin_us), now_us, adapts)
  end
  if adapts and adapts ~= '0' then m.heard = true end
  if kind == 'funnel' or kind == 'token_bucket' then

    -- The time that k permits stand for: whole microseconds, and n-ths of one. It
    -- ends at FAR.
    local function span(k, n, period_us)
      local rest = period_us % n
      local parts = k * rest
      local fraction = parts % n
      local us = k * ((period_us - rest) / n) + (parts - fraction) / n
      if us >= FAR then return FAR, 0 end
      return us, fraction
    end

    -- How many permits a time stands for, the inverse of span, rounded up.
    local function owed(us, fraction, n, period_us)
      local parts = us * n + fraction
      if parts < FAR then
        local over = parts % period_us
        return (parts - over) / period_us + (over > 0 and 1 or 0)
      end
      local k = floor(parts / period_us) -- near it, where numbers are not exact
      local at, over = span(k, n, period_us)
      while k > 0 and (at > us or (at == us and over >= fraction)) do
        k = k - 1
        at, over = span(k, n, period_us)
      end
      while at < us or (at == us and over < fraction) do
        k = k + 1
        at, over = span(k, n, period_us)
      end
      return k
    end

    -- A funnel or a token bucket: GCRA with the theoretical arrival time (TAT) kept
    -- as whole microseconds plus a fraction in 1/n of one, so that nothing drifts.
    -- State: "tat fraction n period_us". n permits per period, at most capacity at
    -- once: a permit every period/n, and TAT may run capacity·period/n ahead.
    local function gcra(m, now_us)
      local n, period_us, capacity = m.n, m.period_us, m.capacity
      local tat, fraction = 0, 0
      local state = call('GET', m.state)
      if state then
        local rate
        tat, fraction, rate = string.match(state, '^(%d+) (%d+) (.+)$')
        tat, fraction = tonumber(tat), tonumber(fraction)
        if rate ~= m.rate then

          -- What a meter owes after a change of its rate: what was owed at that moment in
          -- permits stays, rounded up, and leaks at the new rate from then on.
          local function leaked(m, tat, fraction, rate)
            local since_us = m.name and tonumber(call('HGET', hg('limit', m.name), 'since_us')) or now_us
            if m.since_us and m.since_us > since_us then since_us = m.since_us end
            if tat < since_us then return 0, 0 end
            local n, period_us = string.match(rate, '^(%d+) (%d+)$')
            local us, over = span(owed(tat - since_us, fraction, tonumber(n), tonumber(period_us)), m.n, m.period_us)
            return since_us + us, over
          end
          tat, fraction = leaked(m, tat, fraction, rate)
        end
      end
      if tat < now_us then tat, fraction = now_us, 0 end
      if tat >= FAR then tat, fraction = FAR, 0 end

      function m.ready_at(k)
        if k == 0 then return now_us end
        local at
        if k <= capacity then
          local us, over = span(capacity - k, n, period_us)
          at = tat - us
          if fraction > over then at = at + 1 end
        else
          local us, over = span(k - capacity, n, period_us)
          at = tat + us + ceil((fraction + over) / n)
        end
        if at >= FAR then return FAR end
        return at > now_us and at or now_us
      end

      -- With no k it stores what is there. What is owed at a rate that ends lasts longer
      -- where a slower one comes after it.
      function m.take(k)
        local us, over = span(k or 0, n, period_us)
        tat, fraction = tat + us, fraction + over
        if fraction >= n then tat, fraction = tat + 1, fraction - n end
        if tat >= FAR then tat, fraction = FAR, 0 end
        local lasts_us = tat - now_us
        if m.slower and m.slower > 1 then lasts_us = math.min(lasts_us * m.slower, FAR) end
        local ttl_ms = ceil(lasts_us / 1000) + GRACE + (m.longer_ms or 0)
        call('SET', m.state, int(tat) .. ' ' .. int(fraction) .. ' ' .. m.rate, 'PX', int(ttl_ms))
        return tat
      end

      function m.left()
        local left = capacity - owed(tat - now_us, fraction, n, period_us)
        return left > 0 and left or 0
      end

      function m.full_at() return fraction > 0 and tat + 1 or tat end

      return m.take
    end
    keep = gcra(m, now_us)
  elseif kind == 'sliding_log' then

    -- A sliding log: at most n permits in every window of one period, exactly.
    -- State: LIST of the times of the last n permits, oldest first. A k-th permit
    -- exists once the (n-k+1)-th newest time is a whole period old.
    local function sliding_log(m, now_us)
      local n, period_us = m.n, m.period_us

      local function newest(i)
        local at = call('LINDEX', m.state, -i)
        return at and tonumber(at)
      end

      function m.ready_at(k)
        if k == 0 then return now_us end
        local within = (k - 1) % n + 1
        local rounds = (k - within) / n
        local at = newest(n - within + 1)
        at = at and at + period_us or now_us
        return math.min((at > now_us and at or now_us) + rounds * period_us, FAR)
      end

      local function keep() call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + GRACE + (m.longer_ms or 0))) end

      function m.take(k)
        local last = newest(1)
        local at = int(last and last > now_us and last or now_us)
        while k > 0 do
          local batch = {}
          for i = 1, math.min(k, 1000) do batch[i] = at end
          call('RPUSH', m.state, unpack(batch))
          k = k - #batch
        end
        call('LTRIM', m.state, -n, -1)
        keep()
      end

      -- Times are in order, so the first that still counts is found by halving.
      function m.left()
        local length = call('LLEN', m.state)
        local low, high = 0, length
        while low < high do
          local middle = floor((low + high) / 2)
          if tonumber(call('LINDEX', m.state, middle)) + period_us > now_us then high = middle else low = middle + 1 end
        end
        local left = n - (length - low)
        return left > 0 and left or 0
      end

      function m.full_at()
        local last = newest(1)
        return last and last + period_us > now_us and last + period_us or now_us
      end

      return keep
    end
    keep = sliding_log(m, now_us)
  elseif kind == 'sliding_window' then

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
      end

      function m.left()
        if behind > now_us or sum >= n then return 0 end
        return n - sum
      end

      function m.full_at() return #parts > 0 and leaves(parts[#parts]) or now_us end

      return keep
    end
    keep = sliding_window(m, now_us)
  elseif kind == 'fixed_window' then

    -- The boundaries of a limit's windows: multiples of the period, or, where a
    -- calendar decides, the list `edges` that Go computed; the choice among them is
    -- made here by Redis's clock. Returns a function that gives the start of the
    -- i-th window after the one which holds a moment, and whether the list ends.
    local function windows(m)
      local margin_us, offset_us, stored = unpack(call('HMGET', hg('limit', m.name), 'margin_us', 'offset_us', 'edges'))
      margin_us = tonumber(margin_us)
      if not stored then
        return margin_us, function(at, i) return at - (at - offset_us) % m.period_us + i * m.period_us end
      end
      local edges = {}
      for edge in string.gmatch(stored, '%d+') do edges[#edges + 1] = tonumber(edge) end
      return margin_us, function(at, i)
        local here = 0
        while edges[here + 1] and edges[here + 1] <= at do here = here + 1 end
        if here == 0 or here == #edges then m.stale = true end
        if i == 0 then return edges[here] or at end
        return edges[here + i] or (edges[#edges] or at) + (here + i - #edges) * m.period_us
      end
    end

    -- A fixed window: at most n permits in each aligned period. A window opens
    -- margin_us after its start and closes as much before its end, so that no call
    -- arrives in another one than it was counted in.
    -- State: "last count": when the last permit was taken, and how many were in its
    -- window. They count as long as the last of them lies in the present window,
    -- however the windows have changed. One in the future means that the clock
    -- stepped back: a meter's time does not.
    local function fixed_window(m, now_us)
      local n = m.n
      local margin_us, starts = windows(m)
      local last, count = 0, 0
      local state = call('GET', m.state)
      if state then
        last, count = string.match(state, '^(%d+) (%d+)$')
        last, count = tonumber(last), tonumber(count)
      end
      local at = last > now_us and last or now_us
      local start = starts(at, 0)
      if last < start then count = 0 end
      local open, closed = start + margin_us, margin_us > 0 and at >= starts(at, 1) - margin_us

      function m.ready_at(k)
        if k == 0 then return now_us end
        local ready, spare = open, n > count and not closed and n - count or 0
        if k > spare then ready = starts(at, ceil((k - spare) / n)) + margin_us end
        if ready >= FAR then return FAR end
        return ready > now_us and ready or now_us
      end

      local function keep()
        local ttl_ms = ceil((starts(at, 1) - now_us) / 1000) + GRACE + (m.longer_ms or 0)
        call('SET', m.state, int(last) .. ' ' .. int(count), 'PX', int(ttl_ms))
      end

      function m.take(k)
        last, count = at, count + k
        keep()
      end

      function m.left() return open <= now_us and not closed and n > count and n - count or 0 end

      function m.full_at() return count > 0 and starts(at, 1) or now_us end

      return keep
    end
    keep = fixed_window(m, now_us)
  else

    -- The leases of a concurrency meter: ZSETs of holders, each with the microsecond
    -- its lease ends. One who holds 5 permits stands in those of 1 and of 4, so any
    -- cost is a few members, and what is held a few counts. All but the first exist
    -- only where a lease of several permits was given: a mark beside them says so.
    local function lease_sets(state)
      local sets = { state }
      if call('EXISTS', state .. '\n') == 1 then
        for i = 1, 23 do sets[i + 1] = state .. '\n' .. int(i) end
      end
      return sets
    end

    -- How many permits a holder holds and until when; 0 if its lease has ended.
    local function held_by(sets, holder)
      local held, worth, until_us = 0, 1, 0
      for i = 1, #sets do
        local ends = tonumber(call('ZSCORE', sets[i], holder) or 0)
        if ends > now_us then held, until_us = held + worth, ends end
        worth = worth * 2
      end
      return held, until_us
    end

    -- Has a holder hold k permits until a moment, and nothing else; k = 0 gives back
    -- what it holds. Leases that have ended go a grace later, a hundred at a time.
    -- Returns when the last lease ends.
    local function hold(sets, holder, k, until_us)
      local state, last = sets[1], now_us
      if k > 1 and #sets == 1 then
        call('SET', state .. '\n', '1')
        sets = lease_sets(state)
      end
      for i = 1, #sets do
        local bit = k % 2
        k = (k - bit) / 2
        if bit == 1 then call('ZADD', sets[i], int(until_us), holder) else call('ZREM', sets[i], holder) end
        local late = call('ZCOUNT', sets[i], '-inf', int(now_us - GRACE * 1000))
        if late > 0 then call('ZREMRANGEBYRANK', sets[i], 0, late > 100 and 99 or late - 1) end
        local ends = tonumber(call('ZRANGE', sets[i], -1, -1, 'WITHSCORES')[2] or 0)
        if ends > last then last = ends end
      end
      local ttl_ms = int(ceil((last - now_us) / 1000) + GRACE)
      for i = 1, #sets do call('PEXPIRE', sets[i], ttl_ms) end
      if #sets > 1 then call('PEXPIRE', state .. '\n', ttl_ms) end
      return last
    end

    -- Concurrency: at most n permits held at once, each a lease that ends unless
    -- its holder extends it. The holder's own permits do not count against it, so
    -- asking twice is asking once.
    -- State: the ZSETs of leases.lua.
    local function concurrency(m, now_us, holder)
      local n, sets = m.capacity, lease_sets(m.state)
      m.lease_us = tonumber(call('HGET', hg('limit', m.name), 'lease_us'))
      m.known = false

      -- How many permits others hold whose leases end by a moment.
      local function ending_by(at)
        local sum, worth = 0, 1
        for i = 1, #sets do
          sum = sum + worth * call('ZCOUNT', sets[i], '(' .. int(now_us), at)
          worth = worth * 2
        end
        return sum
      end
      local live, own, own_until = ending_by('+inf'), 0, 0
      if live > 0 and holder then own, own_until = held_by(sets, holder) end
      live = live - own

      function m.full_at()
        local last = now_us
        for i = 1, #sets do
          local ends = tonumber(call('ZRANGE', sets[i], -1, -1, 'WITHSCORES')[2] or 0)
          if ends > last then last = ends end
        end
        return last
      end

      -- The first moment at which enough leases have ended is found by halving.
      function m.ready_at(k)
        if k == 0 or live + k <= n then return now_us end
        if live == 0 then return now_us + m.lease_us end
        local missing = math.min(live + k - n, live)
        local low, high = now_us, m.full_at()
        while low < high do
          local middle = floor((low + high) / 2)
          local ended = ending_by(int(middle)) - (own_until <= middle and own or 0)
          if ended >= missing then high = middle else low = middle + 1 end
        end
        return low
      end

      function m.take(k)
        local last = hold(sets, holder, k, now_us + m.lease_us)
        live = live + k
        m.full_at = function() return last end
      end

      function m.left() return live < n and n - live or 0 end
    end
    concurrency(m, now_us, holder)
  end

  if paused or ends then

    -- Shuts a meter that is paused, or blocked until a moment. While a limit is
    -- paused who asks is told to look again in a minute.
    local function shut(m, paused, ends)
      m.shut, m.known = true, not paused and m.known
      local ready_at = m.ready_at
      m.open_left = m.left -- what would be, were it not shut
      m.left = function() return 0 end
      m.ready_at = function(k)
        local at = paused and now_us + 60000000 or ready_at(k)
        return ends and ends > at and ends or at
      end
    end
    shut(m, paused, ends)
  end
  if m.ends_us then

    -- A meter whose key counts otherwise until a moment. What would be ready later is
    -- ready as the limit itself says from then on.
    local function ending(m, paused, after)
      local ready_at, full_at = m.ready_at, m.full_at
      m.ready_at = function(k)
        local at = ready_at(k)
        return (paused or at < m.ends_us) and at or after().ready_at(k)
      end
      m.full_at = function()
        local at = full_at()
        return at < m.ends_us and at or after().full_at()
      end
    end
    ending(m, paused, function() return (load_meter(name, key, app, holder, m.ends_us)) end)
  end
  return m, keep
end

-- Meters do not change while turns are given; only what is reserved of them.
local known, stale = {}, {}
local function meter(id)
  local m = known[id]
  if m ~= nil then return m end
  local name, key = string.match(id, '^([^|]*)|(.*)$')
  m = load_meter(name, key) or false
  if m then
    m.reserved, m.promised = tonumber(call('HGET', hg('meters'), id) or 0), 0
    if m.stale then stale[#stale + 1] = name end
  end
  known[id] = m
  return m
end

-- A line is a lane as one call sees it: so many turns of it are tried; of its
-- waiting jobs the first, of which so many were taken. Those leave the lane at
-- the end, all at once.
local lines, by_lane = {}, {}
local wanted = {} -- meter -> permits that those taken had wanted of it

local function line_of(lane)
  local line = by_lane[lane]
  if line then return line end
  local queue, ids = parse_lane(lane)
  line = {
    lane = lane, queue = queue, ids = ids, turns = 0, jobs = {}, records = {}, taken = 0, calls = {}, told = 0,
    called = call('ZCARD', hg('called', lane)), held = false, held_text = false, before = false, meters = {}, like = false,
  }
  lines[#lines + 1], by_lane[lane] = line, line
  return line
end

-- What a turn needs of a job's record: for how long permits are reserved for it,
-- and its costs. Mostly that is as for the one before it in its lane.
local function parse_costs(line, record)
  local grant, costs = string.match(record, '^%-?%d+\n%d+\n(%d+)\n%d ?%d*\n([%d,]+)\n')
  if not costs then return false end -- nothing that a script has written
  local r = line.like
  if r and r.costs == costs and r.grant == grant then return r end
  r = { grant = grant, costs = costs, grant_us = tonumber(grant), cost = {} }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  line.like = r
  return r
end

-- Reads as many more of a line's jobs as its turns may need. Reports whether there
-- are any.
local function read_more(line)
  local read = #line.jobs
  local more, names = call('ZRANGE', hg('lane', line.lane), read, read + line.turns), {}
  for i = 1, #more do line.jobs[read + i], names[i] = more[i], line.queue .. '\n' .. more[i] end
  local records = #more > 0 and call('HMGET', hg('jobs'), unpack(names)) or names
  for i = 1, #more do line.records[read + i] = records[i] and parse_costs(line, records[i]) end
  return #more > 0
end

-- The first waiting job of a line and its record. One without a record (somebody
-- removed it) stops nobody.
local function first(line)
  while line.taken < #line.jobs or read_more(line) do
    local r = line.records[line.taken + 1]
    if r then return line.jobs[line.taken + 1], r end
    line.taken = line.taken + 1
  end
end

-- How many called jobs of a line are on their way. Those called ahead are not yet
-- told, and shelved ones are not waited for.
local function on_their_way(line, grant_us)
  line.before = line.before or call('ZCOUNT', hg('called', line.lane), 0, int(now_us + grant_us))
  return line.before + line.told
end

-- Takes the line's first job out of it, called: permits are reserved until then,
-- and it wants none any more.
local function called(line, id, r, at, until_us)
  line.taken, line.called = line.taken + 1, line.called + 1
  if at <= now_us then line.told = line.told + 1 end
  line.calls[#line.calls + 1] = int(until_us)
  line.calls[#line.calls + 1] = id
  for i = 1, #line.ids do wanted[line.ids[i]] = (wanted[line.ids[i]] or 0) + r.cost[i] end
end

-- Writes what the turns have changed.
local function store()
  for i = 1, #lines do
    local line = lines[i]
    if line.taken > 0 then call('ZREM', hg('lane', line.lane), unpack(line.jobs, 1, line.taken)) end
    if #line.calls > 0 then call('ZADD', hg('called', line.lane), unpack(line.calls)) end
    if line.called == 0 then

      -- Forgets a lane of which nothing waits and nobody is called; and with the last
      -- one all that a lost record, or a process that died, may have left behind.
      local function leave_if_empty(lane)
        if call('EXISTS', hg('lane', lane), hg('called', lane)) > 0 then return end
        call('ZREM', hg('lanes'), lane)
        if call('EXISTS', hg('lanes')) == 1 then
          call('HDEL', hg('tickets'), lane)
          call('SREM', hg('full'), lane)
        else
          call('DEL', hg('tickets'), hg('full'), hg('meters'), hg('demand'), hg('patience'))
        end
      end
      leave_if_empty(line.lane)
    end
  end
  for id, m in pairs(known) do
    if m and m.promised > 0 then call('HINCRBY', hg('meters'), id, int(m.promised)) end
  end
  for id, permits in pairs(wanted) do count(hg('demand'), id, -permits) end
end

-- How long k permits take to come again: a funnel gives them back one by one, a
-- window all at its end, a concurrency meter when a lease ends.
local function worth_us(m, k)
  if m.lease_us then return m.lease_us end
  local kind = string.match(m.state, '^[a-z_]+', #hg('m') + 2)
  if kind ~= 'funnel' and kind ~= 'token_bucket' then return m.period_us end
  return math.min(ceil(k * m.period_us / m.n), FAR)
end

-- What became of a turn, as Go's turns.Outcome numbers it.
local GRANTED, REFUSED, SKIPPED, EMPTY, FULL, LEARN = 0, 1, 2, 3, 4, 5

-- The meters that a job needs, each with its cost; or nil where a limit is gone
-- or too small for it.
local function meters_of(line, r)
  local meters = line.meters
  for i = 1, #line.ids do
    local m = meters[i] or meter(line.ids[i])
    if not m or r.cost[i] > m.capacity then return nil end
    m.cost, meters[i] = r.cost[i], m
  end
  return meters
end

-- As many jobs of a lane may be on their way as its meters can give at once.
local function most_called(meters)
  local most
  for i = 1, #meters do
    local m = meters[i]
    local n = m.cost > 0 and floor(m.capacity / m.cost) or m.capacity
    if not most or n < most then most = n end
  end
  return most
end

-- Until when a permit must exist for its job to be called now. A job of several
-- limits is not called ahead: permits of one would be reserved while it waits
-- for another's. Nor is one where nobody knows when permits come back, or where
-- few permits can be taken at once: there a job that takes its permit late makes
-- the next one's later.
local function horizon(meters, ahead_us)
  local m = meters[1]
  if #meters > 1 or not m.known or (m.capacity - m.cost) * m.period_us < ahead_us * m.n then return now_us end
  return now_us + ahead_us
end

-- Refuses a turn. Those that follow and need one of its meters would take what
-- it may hold, so they are not even tried. Newcomers may not take there either.
local function refuse(meters, held)

  local MARKS_MS = 10000 -- how long marks outlive who gives turns

  -- Marks a meter at which a lane waits, so that newcomers take nothing there. A
  -- lane's number says which word of a new lane the mark is older than; without
  -- one, a mark that is there stays as it is.
  local function mark(id, number)
    if number then call('HSET', hg('contended'), id, number) else call('HSETNX', hg('contended'), id, '0') end
    call('PEXPIRE', hg('contended'), MARKS_MS)
  end
  for i = 1, #meters do
    local m = meters[i]
    m.refused = true
    if m.ready_at(m.reserved + held[i] + m.cost) > now_us then mark(m.id) end
  end
  return { REFUSED }
end

-- A turn leaves what older lanes hold: so many permits of each meter.
local function turn(line, ahead_us, held_text)
  local held = line.held
  if held_text ~= line.held_text then
    held = {}
    for permits in string.gmatch(held_text, '%d+') do held[#held + 1] = tonumber(permits) end
  end
  for i = 1, #line.ids do
    local m = known[line.ids[i]]
    if m and m.refused then
      line.held = line.held or held
      return { SKIPPED }
    end
  end
  line.held, line.held_text = held, held_text
  local id, r = first(line)
  if not id then return { EMPTY } end
  local meters = meters_of(line, r)
  if not meters then -- it is called to learn that
    called(line, id, r, now_us, 0)
    return { LEARN, id, now_us, 0 }
  end
  local most = most_called(meters)
  if line.called >= most and on_their_way(line, r.grant_us) >= most then
    call('SADD', hg('full'), line.lane)
    return { FULL }
  end
  local ready = now_us
  for i = 1, #meters do
    local at = meters[i].ready_at(meters[i].reserved + held[i] + meters[i].cost)
    if at > ready then ready = at end
  end
  if ready > horizon(meters, ahead_us) then return refuse(meters, held) end
  for k = 1, #meters do
    local m = meters[k]
    m.reserved, m.promised = m.reserved + m.cost, m.promised + m.cost
  end
  called(line, id, r, ready, ready + r.grant_us)
  return { GRANTED, id, ready, ready + r.grant_us }
end

-- What is known of a line's next turn, if as much is held then as in its last.
local function outlook(line, ahead_us)
  local id, r = first(line)
  local meters = id and meters_of(line, r)
  if id and not meters then return { line.called, 0 } end -- its turn is to learn that
  if not id then return { line.called } end
  local out = { line.called, horizon(meters, ahead_us) == now_us and 1 or 0 }
  for i = 1, #meters do
    local m = meters[i]
    local n = #out
    out[n + 1], out[n + 2] = m.cost, m.ready_at(m.reserved + line.held[i] + m.cost)
    out[n + 3], out[n + 4], out[n + 5] = m.known and 1 or 0, worth_us(m, m.cost), m.shut and 1 or 0
  end
  return out
end
local process, ahead_us = ARGV[1], tonumber(ARGV[2])

if call('GET', hg('turns')) ~= process then return { 0 } end
local out = { now_us, '' }
for i = 3, #ARGV, 3 do
  local line = line_of(ARGV[i])
  line.turns = line.turns + 1
end
for i = 3, #ARGV, 3 do out[#out + 1] = turn(line_of(ARGV[i]), ARGV[i + 1] == '1' and ahead_us or 0, ARGV[i + 2]) end
for i = 1, #lines do out[#out + 1] = outlook(lines[i], ahead_us) end
store()
out[2] = table.concat(stale, ' ')
return out
