-- @include meter
-- @include change
-- @include summary

-- The record of a key that differs from its limit. Its fields are separated by spaces:
--   source           where the override is from: file (the config), set (at run time), - (none)
--   kind             kind of limit for which the override is, or - without an override
--   n, per_us        rate of the override; if n is 0, the key has the limit's rate
--   capacity         capacity of the override; if 0, the key has the limit's capacity
--   since_us         time of the last change of the key's rate
--   share            part of the rate that the key has, in millionths
--   rate_limited     number of consecutive 429s of the upstream
--   rate_limited_us  time of the last 429
--   allowed_share    share that the 429s allow; a high latency can make share lower
--   latency_us       latency of the upstream, smoothed; 0 if not measured
--   feedback_us      time of the last accepted call, less a rest that speed_up has not counted
--   slowed_us        time at which the key last slowed down
-- Times are Unix microseconds. A time is 0 if the event never happened.
local FIELDS = {
  'source', 'kind', 'n', 'per_us', 'capacity', 'since_us', 'share', 'rate_limited', 'rate_limited_us',
  'allowed_share', 'latency_us', 'feedback_us', 'slowed_us',
}
local FULL = 1000000 -- the full rate
local PATTERN = '^%S+ %S+( (%d+) (%d+) %d+ %d+ [1-9]%d*' .. string.rep(' %d+', #FIELDS - 7) .. ')$'

-- Returns the record of a key. A key without a record, or with a malformed one, gets a record
-- without an override and feedback.
local function read_record(name, key)
  local r, i = { share = FULL, allowed_share = FULL }, 0
  local record = call('HGET', hg('overrides', name), key) or ''
  local numbers, n, per_us = string.match(record, PATTERN)
  if numbers and (n == '0' or per_us ~= '0') then
    for word in string.gmatch(record, '%S+') do
      i = i + 1
      r[FIELDS[i]] = i <= 2 and word or tonumber(word)
    end
  end
  for i = 1, #FIELDS do r[FIELDS[i]] = r[FIELDS[i]] or (i <= 2 and '-' or 0) end
  return r
end

-- Converts the state of a key's meter to the present rate of the key, and stores the state again.
local function store_meter(name, key)
  local m, store_state = load_meter(name, key)
  if store_state and not m.stale and call('EXISTS', m.state) == 1 then store_state() end
end

-- Returns the time at which a record loses its feedback or is deleted: an hour after the last
-- feedback, or after the block that follows a 429, because the first call after it says whether the
-- upstream serves again. A record without an override also lasts an hour after since_us, which charge.lua
-- needs. Returns nil for a record that has an override and no feedback.
local function expires_at(name, key, r)
  local feedback_us = math.max(r.rate_limited_us, r.feedback_us, r.slowed_us)
  local blocked_us = r.rate_limited > 0 and tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0
  if feedback_us > 0 or r.source == '-' then return math.min(math.max(feedback_us, r.since_us, blocked_us) + GIVE_BACK_US, MAX_INT) end
end

-- Stores a record, and sets the limit's field `overrides`, which says that the limit has records.
local function store_record(name, key, r)
  local limit, words = hg('limit', name), { r.source, r.kind }
  for i = 3, #FIELDS do words[i] = int(r[FIELDS[i]]) end
  call('HSET', hg('overrides', name), key, table.concat(words, ' '))
  local until_us = expires_at(name, key, r)
  if until_us then call('ZADD', hg('ending', name), int(until_us), key) else call('ZREM', hg('ending', name), key) end
  if call('HSET', limit, 'overrides', '1') == 1 then store_summary(name) end
end

-- Reports whether a record has an override or feedback.
local function has_content(r)
  return r.source ~= '-' or r.share < FULL or r.rate_limited > 0 or r.feedback_us > 0 or r.slowed_us > 0
end

-- Deletes a record that has no content if its since_us is more than an hour ago.
local function drop_if_empty(name, key, r)
  if has_content(r) or r.since_us + GIVE_BACK_US > now_us then return end
  local limit, overrides = hg('limit', name), hg('overrides', name)
  call('HDEL', overrides, key)
  call('ZREM', hg('ending', name), key)
  if call('EXISTS', overrides) == 0 and call('HDEL', limit, 'overrides') == 1 then store_summary(name) end
end

-- Stores a record with another rate for the key, which applies from now on. Permits in use stay in
-- use.
local function change_rate(name, key, r)
  store_meter(name, key)
  r.since_us = now_us
  store_record(name, key, r)
  store_meter(name, key)
  drop_if_empty(name, key, r)
  publish_change('meter', name .. '|' .. key)
end

-- Adds an entry to the changelog about the override of a key. The record before has the override
-- before the change. text is the one after it, or '' if there is none any more.
local function log_override(what, name, actor, key, before, text)
  log_change(what, name, actor, 'key', key, 'from_n', int(before.n), 'from_per_us', int(before.per_us), 'from_capacity', int(before.capacity), 'to', text)
end

-- Removes the override from the record r, without storing r.
local function clear_override(r)
  r.source, r.kind, r.n, r.per_us, r.capacity = '-', '-', 0, 0, 0
end

-- Ends a row of 429s: a job that alone was refused waits behind no later job any more.
local function end_row(name, key)
  -- @include served
  note_served(name .. '|' .. key)
end

-- Removes all feedback from the record r, and stores r.
local function forget_feedback(name, key, r)
  if r.rate_limited > 0 then
    end_row(name, key)
    call('DEL', hg('refused', name .. '|' .. key)) -- no call was served
  end
  local slowed = r.share < FULL
  r.share, r.allowed_share, r.rate_limited, r.rate_limited_us, r.latency_us, r.feedback_us, r.slowed_us = FULL, FULL, 0, 0, 0, 0, 0
  if slowed then change_rate(name, key, r) else store_record(name, key, r) end
end

-- Removes the feedback of up to 100 keys whose feedback ended more than GRACE_MS ago.
local function drop_ended(name)
  local ended = call('ZRANGEBYSCORE', hg('ending', name), '-inf', int(now_us - GRACE_MS * 1000), 'LIMIT', 0, 100)
  for i = 1, #ended do
    local r = read_record(name, ended[i])
    if has_content(r) then forget_feedback(name, ended[i], r) end
    drop_if_empty(name, ended[i], r)
  end
end
