-- @include meter
-- @include change
-- @include summary

-- What differs for one key of a limit, a word each: who said so (file, set, or -),
-- for which kind, rate (n and per_us; 0: the limit's), capacity (0: the limit's),
-- when that ends (0: never); since when the key has its rate; which share of the
-- rate is used, in millionths; how often in a row the other side refused, and when
-- it did last; what adapting keeps: the share that refusals leave, the latency in
-- microseconds, when a call was heard of last, and when the share fell last.
local WORDS = {
  'source', 'kind', 'n', 'per_us', 'capacity', 'ends_us', 'since_us', 'share', 'refused', 'refused_us',
  'bearable', 'latency_us', 'heard_us', 'fell_us',
}
local FULL = 1000000 -- the whole of the rate
local WRITTEN = '^%S+ %S+( (%d+) (%d+) %d+ %d+ %d+ [1-9]%d*' .. string.rep(' %d+', #WORDS - 8) .. ')$'

-- The record of a key. One that no script has written says nothing.
local function read_record(name, key)
  local r, i = { share = FULL, bearable = FULL }, 0
  local record = call('HGET', hg('overrides', name), key) or ''
  local numbers, n, per_us = string.match(record, WRITTEN)
  if numbers and (n == '0' or per_us ~= '0') then
    for word in string.gmatch(record, '%S+') do
      i = i + 1
      r[WORDS[i]] = i <= 2 and word or tonumber(word)
    end
  end
  for i = 1, #WORDS do r[WORDS[i]] = r[WORDS[i]] or (i <= 2 and '-' or 0) end
  return r
end

-- Stores a key's meter as it counts now, once more.
local function keep_meter(name, key)
  local m, keep = load_meter(name, key)
  if keep and not m.stale and call('EXISTS', m.state) == 1 then keep() end
end

-- Until when a record is to be kept; nil: until somebody changes it. What was heard of
-- a key goes when nothing more was for an hour. That a rate has changed is remembered,
-- too, so that nothing older is given back.
local function lasts_until(r)
  local heard_us, ends_us = math.max(r.refused_us, r.heard_us, r.fell_us), r.ends_us > 0 and r.ends_us or nil
  if heard_us == 0 and r.source ~= '-' then return ends_us end
  return math.min(math.max(heard_us, r.since_us) + MEMORY_US, ends_us or FAR)
end

-- Stores a record. The limit says whether any of its keys has one.
local function store_record(name, key, r)
  local limit, words = hg('limit', name), { r.source, r.kind }
  for i = 3, #WORDS do words[i] = int(r[WORDS[i]]) end
  call('HSET', hg('overrides', name), key, table.concat(words, ' '))
  local until_us = lasts_until(r)
  if until_us then call('ZADD', hg('ending', name), int(until_us), key) else call('ZREM', hg('ending', name), key) end
  if call('HSET', limit, 'overrides', '1') == 1 then store_summary(name) end
end

-- Whether a record says more than when the key's rate changed.
local function says_more(r)
  return r.source ~= '-' or r.share < FULL or r.refused > 0 or r.heard_us > 0 or r.fell_us > 0
end

-- Drops a record that says nothing of today.
local function drop_if_plain(name, key, r)
  if says_more(r) or r.since_us + MEMORY_US > now_us then return end
  local limit, overrides = hg('limit', name), hg('overrides', name)
  call('HDEL', overrides, key)
  call('ZREM', hg('ending', name), key)
  if call('EXISTS', overrides) == 0 and call('HDEL', limit, 'overrides') == 1 then store_summary(name) end
end

-- Stores a record with which the key's rate changes now. What its meter owes in
-- permits stays owed.
local function change_rate(name, key, r)
  keep_meter(name, key)
  r.since_us = now_us
  store_record(name, key, r)
  keep_meter(name, key)
  drop_if_plain(name, key, r)
  changed('meter', name .. '|' .. key)
end

-- Takes from a record what was said of its key's rate.
local function restore(r)
  r.source, r.kind, r.n, r.per_us, r.capacity, r.ends_us = '-', '-', 0, 0, 0, 0
end

-- Takes from a record what the other side has taught.
local function unlearn(name, key, r)
  local slowed = r.share < FULL
  r.share, r.bearable, r.refused, r.refused_us, r.latency_us, r.heard_us, r.fell_us = FULL, FULL, 0, 0, 0, 0, 0
  if slowed then change_rate(name, key, r) else store_record(name, key, r) end
end

-- Has meters whose own rate has ended count by the limit's before that changes, a
-- thousand at most.
local function keep_ended(name)
  local ended = call('ZRANGEBYSCORE', hg('ending', name), '-inf', int(now_us), 'LIMIT', 0, 1000)
  for i = 1, #ended do keep_meter(name, ended[i]) end
end

-- Drops what has ended so long ago that no clock steps back to it, a hundred at a
-- time.
local function drop_ended(name)
  local ended = call('ZRANGEBYSCORE', hg('ending', name), '-inf', int(now_us - GRACE * 1000), 'LIMIT', 0, 100)
  for i = 1, #ended do
    local r = read_record(name, ended[i])
    if r.ends_us > 0 and r.ends_us <= now_us then
      keep_meter(name, ended[i])
      r.since_us = math.max(r.since_us, r.ends_us) -- that is when the rate changed, and not now
      restore(r)
      store_record(name, ended[i], r)
    elseif says_more(r) then
      unlearn(name, ended[i], r)
    end
    drop_if_plain(name, ended[i], r)
  end
end
