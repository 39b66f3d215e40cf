-- Reads how many jobs wait in lanes, what some of them cost, and when each lane had its last turn.
-- Touches: jobs (r), lane (r), tickets (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lane, and from which rank up to which its jobs are looked at, 0 for the first
-- Returns for each {how many wait, when it had its last turn or, if it came to wait after that,
--   since when the first of those jobs waits, costs of each of them, separated by spaces, since
--   when the first waits, 0 for none}. A job whose record no script has written is left out.
-- @include lane

local out = {}
for i = 1, #ARGV, 3 do
  local queue = parse_lane(ARGV[i])
  local waiting = hg('lane', ARGV[i])
  local names, costs = call('ZRANGE', waiting, ARGV[i + 1], ARGV[i + 2]), {}
  for k = 1, #names do names[k] = queue .. '\n' .. names[k] end
  local turn_us, first_us = tonumber(call('HGET', hg('tickets'), ARGV[i] .. TURN) or nil) or 0, nil
  local records = #names > 0 and call('HMGET', hg('jobs'), unpack(names)) or {}
  for k = 1, #names do
    local since_us, cost = string.match(records[k] or '', '^[^\n]*\n(%d+)\n[^\n]*\n[^\n]*\n([%d,]+)\n')
    first_us, costs[#costs + 1] = first_us or tonumber(since_us), cost
  end
  out[#out + 1] = { call('ZCARD', waiting), math.max(turn_us, first_us or 0), table.concat(costs, ' '), first_us or 0 }
end
return out
