-- Decides most calls: calls whose limits are funnels or token buckets with nothing but a rate and a
-- capacity, while no job waits for permits. The script decides the calls in order, and each takes
-- all of its permits or none. A call that the script cannot decide takes nothing.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- KEYS[2…] Redis key of each meter's state
-- ARGV[1] caller: for jobs, the ID of a caller that makes one call at a time; '' for calls of Allow
-- ARGV[2] number of the call; a caller's numbers grow, and only repeats of the call have the same
--   number
-- ARGV[3] attempt: 1 when the call is sent for the first time, 2 and more in a repeat
-- ARGV[4…] limit of each meter; then the summary of each limit (see summary.lua); then the rate of
--   each limit, "n period_us"; then for each group of equal calls the number of calls, the number of
--   meters that each of them needs, and for each of these meters:
--     meter      number of the meter, from 1
--     ahead_us   the permits are free if the TAT (see gcra.lua) is at most this far ahead of now
--     cost_us    time by which the cost moves the TAT
--     fractions  n-ths of a microsecond of ahead_us and of cost_us; '' if both are 0
-- Returns '' if no call can be decided, or if a later call of the caller came first, or else a text:
--   now       two words: seconds and microseconds of Redis's clock
--   verdicts  a word with a character for each call:
--             '+' allowed: the permits are taken
--             '=' allowed by the first attempt
--             '-' denied: some permits are not free yet
--             '?' undecided: allow.lua or acquire.lua must decide
--   taken_us  time at which the first attempt took the permits; left out without such an attempt
--   states    a line for each meter with its state before the calls: "born_us tat fraction n
--             period_us"; '' if the meter is unused, or its state is malformed or of another rate
-- @include scope
local caller, call_number, attempt, n, last = ARGV[1], ARGV[2], ARGV[3], #KEYS - 1, #ARGV
local args = ARGV -- a local, because Lua reads globals more slowly

if call('EXISTS', hg('jobs')) == 1 then
  if caller ~= '' then
    -- @include note_call
    note_call(caller, call_number, call_number)
  end
  return ''
end
local summaries = call('HMGET', hg('summaries'), unpack(ARGV, 4, n + 3))
local states = call('MGET', unpack(KEYS, 2))

-- tats[k] is the TAT of meter k in whole microseconds, or false if the caller knows an old version
-- of the limit or the state has another rate. fractions[k] is the rest of the TAT in n-ths of a
-- microsecond. From here on, args[k + 3] is no limit but the text of meter k's born_us. For speed,
-- the code below creates no functions, and reuses the tables of arguments and replies.
local match, find, sub = string.match, string.find, string.sub
local summary_at, rate_at = n + 3, 2 * n + 3
local tats, fractions, anew, found = states, summaries, time[1] .. '.' .. time[2] .. ' ', ''
for k = 1, n do
  local state, tat, fraction, born = states[k], now_us, 0, anew
  if state then
    local space = find(state, ' ', 1, true) or 0
    local at, part, rate = match(state, '^(%d+) (%d+) (.+)$', space + 1)
    if rate == args[rate_at + k] then
      at = at + 0
      if at >= now_us then tat, fraction, born = at, part + 0, sub(state, 1, space) end
    else -- the state has another rate, or is corrupt
      tat, state = false, ''
    end
  end
  found = found .. '\n' .. (state or '')
  tats[k], fractions[k] = summaries[k] == args[summary_at + k] and tat, fraction
  args[k + 3] = born
end

if attempt ~= '1' then
  local first_taken, before = match(call('GET', hg('admitted', caller)) or '', '^' .. call_number .. ' (%d+) (.*)$')
  if before then
    before = string.gsub(before, '.', { ['+'] = '=', ['-'] = '?' })
    return time[1] .. ' ' .. time[2] .. ' ' .. before .. ' ' .. first_taken .. found
  end
end

-- If a job is denied or undecided, the script decides no later job that needs one of its meters.
local verdicts, taken, denied = '', {}, nil
local j = 3 * n + 4
while j <= last do
  local first, final = j + 2, j + 1 + 4 * args[j + 1]
  for at = first, final, 4 do -- once for all calls of the group
    args[at], args[at + 1], args[at + 2] = args[at] + 0, args[at + 1] + now_us, args[at + 2] + 0
  end
  for _ = 1, args[j] + 0 do
    local verdict = '+'
    for at = first, final, 4 do
      local k = args[at]
      local early_us = tats[k] and tats[k] - args[at + 1]
      if not early_us or denied and denied[k] then
        verdict = '?'
        break
      end
      if early_us > 0 or early_us == 0 and fractions[k] > (match(args[at + 3], '^%d+') or 0) + 0 then verdict = '-' end
    end
    if verdict == '+' then
      for at = first, final, 4 do
        local k, parts = args[at], args[at + 3]
        local tat = tats[k] + args[at + 2]
        if parts ~= '' then
          local whole, fraction = match(args[rate_at + k], '^%d+') + 0, fractions[k] + match(parts, '%d+$')
          if fraction >= whole then tat, fraction = tat + 1, fraction - whole end
          fractions[k] = fraction
        end
        tats[k], taken[k] = tat, true
      end
    elseif caller ~= '' then
      denied = denied or {}
      for at = first, final, 4 do denied[args[at]] = true end
    end
    verdicts = verdicts .. verdict
  end
  j = final + 1
end

if caller ~= '' then
  -- @include note_call
  if note_call(caller, call_number, call_number .. ' ' .. int(now_us) .. ' ' .. verdicts) then return '' end
end
for k = 1, n do
  if taken[k] then
    local tat, fraction = tats[k], fractions[k]
    local parts = fraction == 0 and ' 0 ' or ' ' .. int(fraction) .. ' '
    call('SET', KEYS[k + 1], args[k + 3] .. int(tat) .. parts .. args[rate_at + k], 'PX', int(ceil((tat - now_us) / 1000) + GRACE_MS))
  end
end
return time[1] .. ' ' .. time[2] .. ' ' .. verdicts .. found
