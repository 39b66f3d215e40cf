-- Takes the permits of all limits named in one step, or none of them.
-- For callers outside a queue: it leaves permits reserved for called jobs alone,
-- and a denial changes nothing.
-- Touches: blocked (r), deleted (r), jobs (r), limit (r), m (rw), meters (r),
--   overrides (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2] holder of leases on concurrency limits
-- ARGV[3…] limit, key, cost for each need; cost 0 looks without taking
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, shortest lease in microseconds or 0}; {4, index, now_us,
--   1 if Redis lost the limit}; {6, names, now_us} where calendars must be extended
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

-- The outcomes, as Go's throttle.Outcome numbers them, and one of our own.
local ALLOWED, DENIED, NEVER, NO_LIMIT, TOO_LATE, STALE = 1, 2, 3, 4, 5, 6

-- Loads the meters of a call from the triples limit, key, cost in ARGV. Returns
-- them, or nil and the reply to give: a limit that does not exist for the app, and 1
-- if Redis lost it (one that was deleted on purpose left its name) or 2 if it is for
-- other apps; a cost that can never fit; or a calendar that Go must extend first.
local function load_needs(first, app, holder)
  local meters, stale = {}, {}
  for i = first, #ARGV, 3 do
    local m = load_meter(ARGV[i], ARGV[i + 1], app, holder)
    local index = (i - first) / 3
    if not m then
      local why = call('EXISTS', hg('limit', ARGV[i])) == 1 and 2 or 1 - call('HEXISTS', hg('deleted'), ARGV[i])
      return nil, { NO_LIMIT, index, now_us, why }
    end
    m.index, m.cost = index, tonumber(ARGV[i + 2])
    if m.cost > m.capacity then
      if m.stale then return nil, { STALE, m.name, now_us } end
      return nil, { NEVER, index, now_us, 0, m.left(), m.full_at(), m.capacity }
    end
    if m.stale then stale[#stale + 1] = m.name end
    meters[#meters + 1] = m
  end
  if #stale > 0 then return nil, { STALE, table.concat(stale, ' '), now_us } end
  return meters
end

-- Of all meters the one to wait longest for, and until when. `current` wins
-- where several are equal.
local function binding(meters, current)
  local bind, at = nil, -1
  for i = 1, #meters do
    local m = meters[i]
    local ready = m.ready_at(m.reserved + m.cost)
    if ready > at or (ready == at and m.id == current) then bind, at = m, ready end
  end
  return bind, at
end

-- The reply for an outcome that meter m decided, with `at` the time to come back.
local function reply(outcome, m, at, time_us, left)
  left = left or m.left() - m.reserved
  return { outcome, m.index, now_us, at, left > 0 and left or 0, m.full_at(), m.capacity, time_us or 0 }
end

-- Takes the permits of all meters, unless they were taken before, and replies
-- with the one that has least left; then whether the limiter is to hear how the
-- call goes, and until when each funnel owes now.
local function take_all(meters, before)
  local tightest, least, lease_us
  local heard, owes = 0, {}
  for i = 1, #meters do
    local m = meters[i]
    owes[i] = m.cost > 0 and not before and m.take(m.cost) or 0
    if m.heard then heard = 1 end
    local left = m.left() - m.reserved
    if not least or left < least then tightest, least = m, left end
    if m.lease_us and m.cost > 0 and (not lease_us or m.lease_us < lease_us) then lease_us = m.lease_us end
  end
  local answer = reply(ALLOWED, tightest, now_us, lease_us, least)
  answer[9] = heard
  for i = 1, #owes do answer[9 + i] = owes[i] end
  return answer
end
local app, holder = ARGV[1], ARGV[2]

local meters, refusal = load_needs(3, app, holder)
if not meters then return refusal end

local function answer()
  local bind, at = binding(meters)
  if at > now_us then return reply(DENIED, bind, at) end
  return take_all(meters)
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if call('EXISTS', hg('jobs')) == 0 then return answer() end


-- Has every meter count the permits that are reserved for called jobs, and know how
-- many lanes take turns there.
local function load_reserved(meters)
  for i = 1, #meters do
    local m = meters[i]
    local of = call('HMGET', hg('meters'), m.id, m.id .. LANES)
    m.reserved, m.lanes = tonumber(of[1] or 0), tonumber(of[2] or 1)
  end
end

load_reserved(meters)
return answer()
