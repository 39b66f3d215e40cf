-- Does what redis-cell's CL.THROTTLE does: decides a call for a funnel whose rate and capacity are
-- arguments. If an earlier call had another rate, the stored state is converted to the new rate.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] key
-- ARGV[2] capacity, max_burst + 1
-- ARGV[3] count of permits per period
-- ARGV[4] period in microseconds
-- ARGV[5] number of permits to take; 0 takes nothing
-- Returns {outcome: 1 allowed, 2 denied, 3 impossible; now_us, ready_at_us, left, full_at_us}.
-- ready_at_us is the first time at which the quantity is free, before this call takes any
-- @include gcra
local key, capacity, n, period_us, quantity = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local m = { state = hg('cell', key), n = n, period_us = period_us, capacity = capacity, rate = int(n) .. ' ' .. int(period_us) }
gcra(m, now_us)
local at = m.ready_at(quantity)
local outcome = quantity > capacity and 3 or at > now_us and 2 or 1
if outcome == 1 and quantity > 0 or m.owes then
  m.take(outcome == 1 and quantity or 0)
elseif m.owes == false then
  call('DEL', m.state)
end
return { outcome, now_us, at, m.left(), m.full_at() }
