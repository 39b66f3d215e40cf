-- Takes permits of limits that are as the caller knows them, with nothing beside their
-- rate, where nobody waits: the way of most calls, without all that Allow and Acquire
-- may meet. Several calls are one after the other, each takes all or nothing. Where
-- anything is otherwise it does nothing.
-- Touches: admitted (rw), jobs (r), limit (r), m (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] caller, if these are jobs': a name of who sends one script at a time, by which
--   its repeats are known. What one does not get no later one gets. Else empty
-- ARGV[2] number of this one, which only its repeats share
-- ARGV[3] 1 the first time that it is sent, more if it is a repeat
-- ARGV[4] how many meters the calls need
-- ARGV[5…] for each meter: limit, its summary, the meter, its rate; then for each need of
--   each call: the meter's number, negative if it is the call's last; how far its TAT
--   may be ahead so that the cost fits, what the cost adds, in microseconds; and n-ths of
--   one of both, if there are any
-- Returns {now_us, then for each call 1 if the permits were there and are taken, 0 if they
--   were not, -1 if Allow or Acquire must be asked; with TAT and n-ths of each of its
--   meters as they were}; {} if they must be asked for all
-- @include scope
local caller, number, again, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if call('EXISTS', hg('jobs')) == 1 then return {} end

-- Each meter's TAT and n-ths of one; no TAT where its limit is not as the caller knows it.
-- No functions here, and as few tables as can be: to make them costs more than to look.
local limit, summary
local tats, overs, i = {}, {}, 5
for k = 1, count do
  if ARGV[i] ~= limit then
    limit = ARGV[i]
    summary = call('HGET', hg('limit', limit), 'summary')
  end
  local tat, over = summary == ARGV[i + 1] and now_us, 0
  local state = tat and call('GET', hg('m', ARGV[i + 2]))
  if state then
    local at, part, rate = string.match(state, '^(%d+) (%d+) (.+)$')
    at = tonumber(at)
    if rate ~= ARGV[i + 3] then tat = false elseif at >= now_us then tat, over = at, tonumber(part) end
  end
  tats[k], overs[k], i = tat, over, i + 4
end

local told = again ~= '1' and string.match(call('GET', hg('admitted', caller)) or '', '^' .. number .. ' (.*)$')
local out, at, first, verdict = { now_us, 0 }, 2, i, 1
local taken, any, shut = '', false, nil -- shut: what a job did not get no later one gets
for j = i, #ARGV, 4 do
  local k = tonumber(ARGV[j])
  local last = k < 0
  if last then k = -k end
  local tat, over, parts = tats[k], overs[k], ARGV[j + 3]
  local early_us = tat and tat - ARGV[j + 1] - now_us
  if not tat or tat + ARGV[j + 2] >= FAR or shut and shut[k] then
    verdict = -1
  elseif early_us >= 0 and verdict == 1 and (early_us > 0 or over > tonumber(string.match(parts, '^%d+') or 0)) then
    verdict = 0
  end
  out[#out + 1], out[#out + 2] = tat or 0, over
  if last then
    if told and string.byte(told, #taken + 1) == 43 then -- +
      verdict = 1
    elseif verdict == 1 then
      for j = first, j, 4 do
        local k = math.abs(ARGV[j])
        tats[k] = tats[k] + ARGV[j + 2]
        if ARGV[j + 3] ~= '' then
          local n = tonumber(string.match(ARGV[4 * k + 4], '^%d+'))
          overs[k] = overs[k] + string.match(ARGV[j + 3], '%d+$')
          if overs[k] >= n then tats[k], overs[k] = tats[k] + 1, overs[k] - n end
        end
      end
    elseif caller ~= '' then
      shut = shut or {}
      for j = first, j, 4 do shut[math.abs(ARGV[j])] = true end
    end
    out[at] = verdict
    any = any or verdict == 1
    taken, first, verdict = taken .. (verdict == 1 and '+' or '-'), j + 4, 1
    if first <= #ARGV then
      at = #out + 1
      out[at] = 0
    end
  end
end

if told or not any then return out end
if caller ~= '' then call('SET', hg('admitted', caller), number .. ' ' .. taken, 'PX', int(GRACE)) end
for k = 1, count do
  local tat, over = tats[k], overs[k]
  if tat then
    local ttl_ms = ceil((tat - now_us) / 1000) + GRACE
    local parts = over == 0 and ' 0 ' or ' ' .. int(over) .. ' '
    call('SET', hg('m', ARGV[4 * k + 3]), int(tat) .. parts .. ARGV[4 * k + 4], 'PX', int(ttl_ms))
  end
end
return out
