-- Takes a job's permits, or has it wait in its lane until it is called.
-- Safe to repeat: the same call again gets the same answer, and a job that waits
-- keeps its place. A newcomer takes nothing of a meter that is contended: such
-- meters give through the lanes' turns only.
-- Touches: admitted (rw), blocked (r), called (rw), changes (w),
--   contended (rw), deleted (r), demand (rw), full (w), jobs (rw), lane (rw),
--   lanes (rw), limit (r), m (rw), meters (rw), overrides (r), patience (w),
--   seq (w), tickets (w), turns (r), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue it comes from and is called back to
-- ARGV[2] ID of the job
-- ARGV[3] app that asks
-- ARGV[4] caller: a name of who makes one call at a time
-- ARGV[5] number of its call, which only repeats of this very call share
-- ARGV[6] 1 the first time that this call is sent, more if it is a repeat
-- ARGV[7] tickets of head start: 0 normal, negative earlier, positive later
-- ARGV[8] longest wait in microseconds, from its first denial, or -1 for any
-- ARGV[9] microseconds until it is of no use any more, or -1 for never
-- ARGV[10] how long permits are reserved for it once it is called, in microseconds
-- ARGV[11…] limit, key, cost for each need, sorted by limit and key
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us, known}, where time_us is the shortest lease or
--   0 if allowed, and if denied how long to put the job back for; known is 0 where
--   nobody can tell when it will run, or would if it is too late. If allowed,
--   instead of that, whether the limiter is to hear how the call goes, until when
--   each funnel owes; and of a job that waited since when, how often it was denied,
--   and since when its permits exist or 0. {6, names, now_us} where calendars must
--   be extended
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
local queue, id, app, caller, number, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local head_start, max_wait_us, useful_us, grant_us = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local name = queue .. '\n' .. id
local admitted = hg('admitted', caller)

local meters, refusal = load_needs(11, app, name .. '\n' .. caller .. ':' .. number)
local jobs = hg('jobs')
local record = call('HGET', jobs, name)
if refusal and not record then return refusal end

local ids, costs = {}, {}
for i = 1, meters and #meters or 0 do
  ids[i], costs[i] = meters[i].id, ARGV[10 + 3 * i]
end
local lane, costs = queue .. '\n' .. table.concat(ids, '\n'), table.concat(costs, ',')

-- Takes the permits, unless this very call took them before: its answer got lost.
-- Of a job that waited it says how that was.
local function admit(since_us, denials, from_us)

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
  local answer = take_all(meters, call('SET', admitted, number, 'PX', int(GRACE), 'GET') == number)
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, from_us or 0 end
  return answer
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then; nor is more than each case needs.
local before = not record and call('ZCARD', hg('lane', lane))
if before == 0 and call('EXISTS', jobs) == 0 then
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

local ending = '\n' .. costs .. '\n' .. lane
local same = meters and record and string.sub(record, -#ending) == ending

local called = same and hg('called', lane)
local until_us = called and tonumber(call('ZSCORE', called, id) or nil)
if until_us and until_us > 0 then

  -- Adds to a counter in a hash, which at zero leaves nothing behind.
  local function count(counters, id, change)
    local n = call('HINCRBY', counters, id, int(change))
    if n <= 0 then call('HDEL', counters, id) end
  end

  -- Forgets all of a job but its place.
  local function forget_record(job, patience)
    call('HDEL', hg('jobs'), job)
    if patience == '1' then call('ZREM', hg('patience'), job) end
  end

  -- Has a called job that comes in time leave its place, if its permits exist: what
  -- is reserved for it is its own, so all others leave it alone. Returns since when
  -- it waited, how often it was denied, and since when its permits exist; or nothing.
  local function arrive(name, id, lane, called, record, meters, until_us)
    local since_us, grant_us, patience, denials = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) ?(%d*)')
    local _, at = binding(meters)
    if not since_us or at > now_us then return end
    local full = hg('full')
    call('ZREM', called, id)
    for i = 1, #meters do count(hg('meters'), meters[i].id, -meters[i].cost) end
    forget_record(name, patience)
    -- One look says whether any lane is full, which counts 3, and whether anything is
    -- left of this one.
    local there = call('EXISTS', hg('lane', lane), called, full, full, full)
    if there >= 3 or there == 0 then

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

      -- Tells who gives turns that a called job has come, if a turn was refused
      -- because too many had not, or if it came late: its queue takes jobs after all.
      local function make_room(lane, late)
        if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
      end
      if there >= 3 then make_room(lane) end
      if there % 3 == 0 then leave_if_empty(lane) end
    end
    return tonumber(since_us), tonumber(denials) or 1, until_us - grant_us
  end
  local since_us, denials, from_us = arrive(name, id, lane, called, record, meters, until_us)
  if since_us then return admit(since_us, denials, from_us) end
end


-- When a job would run that so many of its lane are before. Lanes take turns, so
-- as many of every other lane go before it, but no more than wait; one that joins
-- comes behind all of a meter that is marked. Returns the meter that decides, its
-- time, and whether that is known.
local function expect(meters, place, joins, marked)
  local last, expected, known
  for i = 1, #meters do
    local m = meters[i]
    local turns = place * m.lanes + (joins and marked == m.id and m.lanes or 0)
    local before = turns * m.cost
    if before > place then
      local all = tonumber(call('HGET', hg('demand'), m.id) or 0) - (joins and 0 or m.cost)
      before = math.max(0, math.min(before, all))
    end
    local at = m.ready_at(m.reserved + before + m.cost)
    if not last or at > expected or (at == expected and m.id == marked) then last, expected, known = m, at, m.known end
  end
  return last, expected, known or expected <= now_us
end

-- Has every meter count the permits that are reserved for called jobs, and know how
-- many lanes take turns there.
local function load_reserved(meters)
  for i = 1, #meters do
    local m = meters[i]
    local of = call('HMGET', hg('meters'), m.id, m.id .. LANES)
    m.reserved, m.lanes = tonumber(of[1] or 0), tonumber(of[2] or 1)
  end
end

-- Puts a job in its lane. The first there is news: the lane gets a number and a
-- meter its mark, so that nobody takes there before the lane had its turn.
local function join(job, ticket, meter)
  local before = job.before or call('ZCARD', job.waiting)
  call('ZADD', job.waiting, ticket, job.id)
  for i = 1, #job.ids do call('HINCRBY', hg('demand'), job.ids[i], int(job.meters[i].cost)) end
  if before > 0 then return end
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, job.lane)

  local MARKS_MS = 10000 -- how long marks outlive who gives turns

  -- Marks a meter at which a lane waits, so that newcomers take nothing there. A
  -- lane's number says which word of a new lane the mark is older than; without
  -- one, a mark that is there stays as it is.
  local function mark(id, number)
    if number then call('HSET', hg('contended'), id, number) else call('HSETNX', hg('contended'), id, '0') end
    call('PEXPIRE', hg('contended'), MARKS_MS)
  end
  mark(meter, number)
  call('PUBLISH', hg('wake'), 'lane ' .. number)
end

-- Has a denied job wait in its lane, or join it; r is what is known of it. Returns
-- the reply, and whether it is too late: then the job is to be forgotten. It is not
-- for an estimate alone, which may say later than it will be.
-- It is put back for the case that nobody calls it. To come early would cost it a
-- second denial, so that is a little longer than it is told to wait. Where nobody
-- knows, it is a minute, and then as long as it has waited.
local function wait(job, r, joins, bind)
  local ticket = r and r.ticket or job.ticket or call('HINCRBY', hg('tickets'), job.lane, 1) + job.head_start
  local text = int(ticket)
  local place = not r and job.head_start == 0 and job.before or call('ZCOUNT', job.waiting, '-inf', '(' .. text)
  local last, expected, known = expect(job.meters, place, not r, job.mark)
  if place > 0 and expected <= now_us then

    -- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
    -- jobs that need the same meters; its name is the queue and those meters, one a
    -- line. A called job has left its lane's waiting jobs and is on its way.

    -- A job's record, one field a line: ticket, since when it waits, how long
    -- permits are reserved for it once it is called, whether its wait may end and how
    -- often it was denied, its costs, its lane.
    local function parse_job(record)
      local ticket, since_us, grant_us, patience, denials, costs, lane =
        string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) ?(%d*)\n([%d,]+)\n(.*)$')
      if not lane then return nil end -- nothing that a script has written
      local r = {
        ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), patience = patience,
        denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {}, ids = false,
      }
      for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
      return r
    end

    local function read_job(queue, id)
      local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
      return record and parse_job(record)
    end

    -- When a job would run that stands behind a dearer one, for which there is too
    -- little though there would be enough for the job itself.
    local function after_head(job, expected)
      local head = read_job(job.queue, call('ZRANGE', job.waiting, 0, 0)[1])
      for i = 1, head and #job.meters or 0 do
        local m = job.meters[i]
        expected = math.max(expected, m.ready_at(m.reserved + head.cost[i] + m.cost))
      end
      return expected
    end
    expected = after_head(job, expected)
  end
  local latest = job.max_wait_us >= 0 and job.since_us + job.max_wait_us or math.huge
  if job.useful_us >= 0 then latest = math.min(latest, now_us + job.useful_us) end
  local patience = '0 '
  if latest < math.huge then

    -- The soonest that a job can run of whose lane so many are before: each takes a
    -- permit at least, and nobody knows what other lanes will take. Where there are none,
    -- and it joins as the last, those before cost what it does, or all that is wanted.
    -- Returns the meter that decides and its time, or nil where that is known of none.
    local function soonest(meters, place, last)
      local decides, at
      for i = 1, #meters do
        local m = meters[i]
        local before = place
        if last and m.lanes == 1 then
          before = math.max(place, math.min(place * m.cost, tonumber(call('HGET', hg('demand'), m.id) or 0)))
        end
        local ready = m.ready_at(m.reserved + before + m.cost)
        if m.known and (not decides or ready > at) then decides, at = m, ready end
      end
      return decides, at
    end
    local m, at = soonest(job.meters, place, place == job.before)
    if m and at > latest then return reply(TOO_LATE, m, at), true end
    if now_us >= latest then
      local answer = reply(TOO_LATE, last, expected)
      answer[9] = known and 1 or 0
      return answer, true
    end
    patience = '1 '
    call('ZADD', hg('patience'), int(latest), job.name)
  end
  local denials = patience .. (r and int(r.denials + 1) or '1')
  call('HSET', hg('jobs'), job.name, text .. '\n' .. int(job.since_us) .. '\n' .. job.grant .. '\n' .. denials .. '\n' .. job.costs .. '\n' .. job.lane)
  if joins then join(job, text, job.mark or bind and bind.id) end
  local back_us = expected - now_us
  if known then
    back_us = back_us + floor(back_us / 10) + 5000000
  else
    back_us = math.min(math.max(now_us - job.since_us, 60000000), 3600000000)
  end
  local answer = reply(DENIED, last, known and expected or now_us + back_us, back_us)
  answer[9] = known and 1 or 0
  return answer
end

local job = {
  name = name, queue = queue, id = id, lane = lane, waiting = hg('lane', lane), ids = ids, costs = costs, meters = meters,
  since_us = now_us, head_start = tonumber(head_start), max_wait_us = tonumber(max_wait_us), useful_us = tonumber(useful_us),
  grant = grant_us, ticket = nil, before = false, mark = false,
}

-- A newcomer may take where nobody waits before it, in its lane or elsewhere. Of
-- one that has waited r is what was known of it.
local function come(r)
  if again ~= '1' then

    -- What this very call was told before, if a caller's last word says so: its number
    -- where it was allowed, or the reply where it was told that it is too late.
    local function repeated(number, last)
      if last == number then return number end
      local verdict = last and string.match(last, '^' .. number .. '\n(.*)$')
      if not verdict then return nil end
      local answer = {}
      for word in string.gmatch(verdict, '%S+') do answer[#answer + 1] = tonumber(word) end
      return answer
    end
    local answer = repeated(number, call('GET', admitted))
    if answer then return answer == number and admit() or answer end
  end
  job.before = before or call('ZCARD', job.waiting)
  load_reserved(meters)
  local first, bind, at = job.before == 0, nil, nil
  if first then

    -- The first of the meters at which a lane waits, or nil.
    local function contended(ids)
      local marks = call('HMGET', hg('contended'), unpack(ids))
      for i = 1, #marks do
        if marks[i] then return ids[i] end
      end
    end
    job.mark = contended(ids)
    bind, at = binding(meters)
  end
  if first and not job.mark and at <= now_us then return admit(r and r.since_us, r and r.denials) end
  local answer, late = wait(job, nil, true, bind)
  if late then

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
    leave_if_empty(lane)
  end
  return answer
end

local r
if record then

  -- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
  -- jobs that need the same meters; its name is the queue and those meters, one a
  -- line. A called job has left its lane's waiting jobs and is on its way.

  -- A job's record, one field a line: ticket, since when it waits, how long
  -- permits are reserved for it once it is called, whether its wait may end and how
  -- often it was denied, its costs, its lane.
  local function parse_job(record)
    local ticket, since_us, grant_us, patience, denials, costs, lane =
      string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) ?(%d*)\n([%d,]+)\n(.*)$')
    if not lane then return nil end -- nothing that a script has written
    local r = {
      ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), patience = patience,
      denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {}, ids = false,
    }
    for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
    return r
  end

  local function read_job(queue, id)
    local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
    return record and parse_job(record)
  end
  r = parse_job(record)
end
if not r then return refusal or come() end


-- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
-- jobs that need the same meters; its name is the queue and those meters, one a
-- line. A called job has left its lane's waiting jobs and is on its way.

-- A job's record, one field a line: ticket, since when it waits, how long
-- permits are reserved for it once it is called, whether its wait may end and how
-- often it was denied, its costs, its lane.
local function parse_job(record)
  local ticket, since_us, grant_us, patience, denials, costs, lane =
    string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) ?(%d*)\n([%d,]+)\n(.*)$')
  if not lane then return nil end -- nothing that a script has written
  local r = {
    ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), patience = patience,
    denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {}, ids = false,
  }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  return r
end

local function read_job(queue, id)
  local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
  return record and parse_job(record)
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

-- Forgets all of a job but its place.
local function forget_record(job, patience)
  call('HDEL', hg('jobs'), job)
  if patience == '1' then call('ZREM', hg('patience'), job) end
end

-- Tells who gives turns that a called job has come, if a turn was refused
-- because too many had not, or if it came late: its queue takes jobs after all.
local function make_room(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
end

-- Tells the process that gives turns of a change to a limit, or to one meter:
-- what it knows of them is void. Changes are numbered, so that one whose word
-- was lost is noticed.
local function changed(kind, name)
  call('PUBLISH', hg('wake'), kind .. ' ' .. int(call('INCR', hg('changes'))) .. ' ' .. name)
end

-- Reports whether a lane waits at a meter.
local function waited_for(id)
  return call('HEXISTS', hg('contended'), id) == 1
end

-- Counts a job's permits for or against each of its meters.
local function count_all(counters, r, sign)
  if not r.ids then r.queue, r.ids = parse_lane(r.lane) end
  for i = 1, #r.ids do count(counters, r.ids[i], sign * r.cost[i]) end
end

-- Tells who gives turns that what was reserved of meters is free again.
local function freed(lane)
  local _, ids = parse_lane(lane)
  for i = 1, #ids do changed('meter', ids[i]) end
end

-- Takes a waiting job out of its lane.
local function step_out(id, r)
  if call('ZREM', hg('lane', r.lane), id) == 1 then count_all(hg('demand'), r, -1) end
end

-- Forgets a job wherever it stands: in its lane or called.
local function forget_job(queue, id, r)
  local called = call('ZSCORE', hg('called', r.lane), id)
  if called then
    call('ZREM', hg('called', r.lane), id)
    if tonumber(called) > 0 then
      count_all(hg('meters'), r, -1)
      freed(r.lane)
    end
    make_room(r.lane)
  else
    step_out(id, r)
  end
  forget_record(queue .. '\n' .. id, r.patience)
  leave_if_empty(r.lane)
end

-- How a called job stands: with permits reserved for it, or too late for them.
local RESERVED, OVERDUE = 1, 2

-- Has a called job take what is reserved for it; or, where it came too late for
-- that, what is reserved by now for the first of its lane that asked for as much.
-- That one takes a later one's in turn. Returns nil where the job was not called,
-- whether it came late, and since when the permits that it takes exist.
local function claim(queue, id, r, until_us)
  local called = hg('called', r.lane)
  call('ZREM', called, id)
  local late, from_us = until_us <= 0, until_us - r.grant_us
  if late then
    local others = call('ZRANGEBYSCORE', called, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 10)
    local other
    for i = #others - 1, 1, -2 do
      local o = read_job(queue, others[i])
      local from = o and tonumber(others[i + 1]) - o.grant_us
      if o and o.costs == r.costs and from <= now_us then other, from_us = others[i], from end
    end
    if not other then return OVERDUE, true end
    call('ZADD', called, 0, other)
  end
  count_all(hg('meters'), r, -1)
  return RESERVED, late, from_us
end

-- Has a job that is known leave its place if it may take its permits now; else it
-- waits on, and the reply is returned. A called job takes what there is. One that
-- waits and was not called is let by only where nobody gives turns.
local function go_on(job, r, called, late)
  local function leave()
    if not called then step_out(job.id, r) end
    forget_record(job.name, r.patience)
    leave_if_empty(job.lane)
  end
  if called ~= RESERVED then load_reserved(job.meters) end
  local bind, at = binding(job.meters)
  if called then make_room(job.lane, late) end
  if at <= now_us and (called or call('ZRANK', job.waiting, job.id) == 0 and call('EXISTS', hg('turns')) == 0) then
    return leave()
  end
  if called == RESERVED then
    freed(job.lane)
    load_reserved(job.meters)
  end
  local answer, over = wait(job, r, called, bind)
  if over then leave() end
  return answer
end

if refusal then
  if refusal[1] ~= STALE then forget_job(queue, id, r) end
  return refusal
end
local was, late, from_us
if until_us then was, late, from_us = claim(queue, id, r, until_us) end

-- Where its rule changed while it waited, or somebody took it out of its lane,
-- a job begins anew; but it has waited since it was denied first.
job.since_us = r.since_us
if not was and not (same and call('ZSCORE', job.waiting, id)) then
  forget_job(queue, id, r)
  return come(r)
end
local answer = go_on(job, r, was, late)
if not answer then return admit(r.since_us, r.denials, from_us) end
if answer[1] == TOO_LATE then -- it is forgotten by now, so a repeat would wait anew
  local words = {}
  for i = 1, #answer do words[i] = int(answer[i]) end
  call('SET', admitted, number .. '\n' .. table.concat(words, ' '), 'PX', int(GRACE))
end
return answer
