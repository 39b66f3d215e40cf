-- Takes permits of limits that are as the caller knows them, with nothing beside their
-- rate, where nobody waits: the way of most calls, without all that Allow and Acquire
-- may meet. Where any of that is there it does nothing.
-- Touches: admitted (w), jobs (r), limit (r), m (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] caller: a name of who makes one call at a time; empty if none is to know a
--   repeat of its call
-- ARGV[2] number of its call, which only repeats of this very call share
-- ARGV[3…] for each need: limit, its summary, its meter; how far its TAT may be ahead so
--   that the cost fits, and what the cost adds, each in microseconds and n-ths of one;
--   n, and its rate
-- Returns {now_us, 1 if the permits were there and are taken, TAT and n-ths of each
--   meter as they were}; {} where Allow or Acquire must be asked
-- @include scope
local caller, number = ARGV[1], ARGV[2]

if call('EXISTS', hg('jobs')) == 1 then return {} end

local out = { now_us, 1 }
for i = 3, #ARGV, 9 do
  if call('HGET', hg('limit', ARGV[i]), 'summary') ~= ARGV[i + 1] then return {} end
  local tat, over, state = now_us, 0, call('GET', hg('m', ARGV[i + 2]))
  if state then
    local was, part, rate = string.match(state, '^(%d+) (%d+) (.+)$')
    was = tonumber(was)
    if rate ~= ARGV[i + 8] or was + ARGV[i + 5] >= FAR then return {} end
    if was >= now_us then tat, over = was, tonumber(part) end
  end
  local at = tat - ARGV[i + 3]
  if at > now_us or at == now_us and over > tonumber(ARGV[i + 4]) then out[2] = 0 end
  out[#out + 1], out[#out + 2] = tat, over
end
if out[2] == 0 then return out end
if caller ~= '' and call('SET', hg('admitted', caller), number, 'PX', int(GRACE), 'GET') == number then return {} end

for j = 3, #out, 2 do
  local i = (9 * j - 21) / 2
  local tat, over, n = out[j] + ARGV[i + 5], out[j + 1] + ARGV[i + 6], tonumber(ARGV[i + 7])
  if over >= n then tat, over = tat + 1, over - n end
  local ttl_ms = ceil((tat - now_us) / 1000) + GRACE
  call('SET', hg('m', ARGV[i + 2]), int(tat) .. ' ' .. int(over) .. ' ' .. ARGV[i + 8], 'PX', int(ttl_ms))
end
return out
