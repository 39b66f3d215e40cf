-- Takes permits by the fast path: of limits that are as the caller knows them and have nothing
-- beside their rate, while no job waits. Most calls need nothing else of what Allow and Acquire can
-- do. Several calls run one after the other, and each takes all or nothing. If anything is
-- otherwise, the script does nothing.
-- Touches: admitted (rw), jobs (r), m (w), summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- KEYS[2…] meters that the calls need
-- ARGV[1] for jobs, the name of a caller that sends one script at a time, so that a repeat is
--   recognized; what one job does not get no later job gets. Else empty
-- ARGV[2] number of this script
-- ARGV[3] how often it was sent
-- ARGV[4…] limit of each meter; their summaries; their rates; then for each call how many
--   meters it needs; or empty, if it needs all in order; or below zero, how many such calls follow
--   that are alike. Then for each of its meters its number, unless it needs all; how far the
--   TAT may be ahead so that the cost fits, and what the cost adds, in microseconds; and n-ths of
--   one of both, if there are any
-- Returns a text: seconds and microseconds of now; for each call + if it has its permits, = if an
--   earlier sending took them, - if they were not there, ? if Allow or Acquire must be asked; and
--   for a repeat the microsecond at which the permits were taken. Then a line for each meter with
--   its state as it was. The text is empty if Allow or Acquire must be asked for all calls
-- @include scope
local caller, number, sent, n, last = ARGV[1], ARGV[2], ARGV[3], #KEYS - 1, #ARGV

if call('EXISTS', hg('jobs')) == 1 then return '' end
local summaries = call('HMGET', hg('summaries'), unpack(ARGV, 4, n + 3))
local states = call('MGET', unpack(KEYS, 2))

-- Each meter's TAT and n-ths of one; no TAT if its limit is not as the caller knows it. There are
-- no functions here, and the tables are those of the replies, because making more costs more than
-- all the rest.
local match = string.match
local summary_at, rate_at = n + 3, 2 * n + 3
local tats, overs, found = states, summaries, ''
for k = 1, n do
  local state, tat, over = states[k], now_us, 0
  if state then
    local at, part, rate = match(state, '^(%d+) (%d+) (.+)$')
    if rate == ARGV[rate_at + k] then
      at = at + 0
      if at >= now_us then tat, over = at, part + 0 end
    else -- a state of another rate, or one that no script has written
      tat, state = false, ''
    end
  end
  found = found .. '\n' .. (state or '')
  tats[k], overs[k] = summaries[k] == ARGV[summary_at + k] and tat, over
end

if sent ~= '1' then
  local taken, before = match(call('GET', hg('admitted', caller)) or '', '^' .. number .. ' (%d+) (.*)$')
  if before then
    before = string.gsub(before, '.', { ['+'] = '=', ['-'] = '?' })
    return time[1] .. ' ' .. time[2] .. ' ' .. before .. ' ' .. taken .. found
  end
end

local verdicts, all, some, denied = '', false, nil, nil -- denied: meters that a job did not get
local j = 3 * n + 4
while j <= last do
  local count, alike, some_of = n, 1, false
  if ARGV[j] ~= '' then
    local head = ARGV[j] + 0
    if head < 0 then alike = -head else count, some_of = head, true end
  end
  local width = some_of and 4 or 3
  for _ = 1, alike do
    local verdict = '+'
    for i = 1, count do
      local at = j + width * i - 2
      local k = some_of and ARGV[at - 1] + 0 or i
      local early_us = tats[k] and tats[k] - ARGV[at] - now_us
      if not early_us or denied and denied[k] then
        verdict = '?'
        break
      end
      if early_us > 0 or early_us == 0 and overs[k] > (match(ARGV[at + 2], '^%d+') or 0) + 0 then verdict = '-' end
    end
    if verdict == '+' then
      all = all or not some_of
      for i = 1, count do
        local at = j + width * i - 2
        local k = some_of and ARGV[at - 1] + 0 or i
        local tat, parts = tats[k] + ARGV[at + 1], ARGV[at + 2]
        if parts ~= '' then
          local whole, over = match(ARGV[rate_at + k], '^%d+') + 0, overs[k] + match(parts, '%d+$')
          if over >= whole then tat, over = tat + 1, over - whole end
          overs[k] = over
        end
        tats[k] = tat
        if some_of then
          some = some or {}
          some[k] = true
        end
      end
    elseif caller ~= '' then
      denied = denied or {}
      for i = 1, count do denied[some_of and ARGV[j + 4 * i - 3] + 0 or i] = true end
    end
    verdicts = verdicts .. verdict
  end
  j = j + 1 + width * count
end

if caller ~= '' and (all or some) then call('SET', hg('admitted', caller), number .. ' ' .. int(now_us) .. ' ' .. verdicts, 'PX', int(GRACE)) end
for k = 1, n do
  if all or some and some[k] then
    local tat, over = tats[k], overs[k]
    local parts = over == 0 and ' 0 ' or ' ' .. int(over) .. ' '
    call('SET', KEYS[k + 1], int(tat) .. parts .. ARGV[rate_at + k], 'PX', int(ceil((tat - now_us) / 1000) + GRACE))
  end
end
return time[1] .. ' ' .. time[2] .. ' ' .. verdicts .. found
