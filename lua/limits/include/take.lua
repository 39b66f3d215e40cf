-- @include needs

-- Takes the permits of all meters, unless they were taken before, for a call that begins now, or
-- later `at` a time. Replies with the meter that has fewest left; then whether the limiter wants
-- feedback, and for each meter the two numbers of its mark, 0 if there is none.
local function take_all(meters, before, at)
  local tightest, least, lease_us
  local answer = { ALLOWED, 0, now_us, now_us, 0, 0, 0, 0, 0 }
  for i = 1, #meters do
    local m = meters[i]
    local mark, given
    if m.cost > 0 and not before then mark, given = m.take(m.cost, at) end
    answer[8 + 2 * i], answer[9 + 2 * i] = mark or 0, given or 0
    if m.wants_feedback then answer[9] = 1 end
    local left = m.left() - m.reserved
    if not least or left < least then tightest, least = m, left end
    if m.lease_us and m.cost > 0 and (not lease_us or m.lease_us < lease_us) then lease_us = m.lease_us end
  end
  answer[2], answer[5], answer[6] = tightest.index, least > 0 and least or 0, tightest.full_at()
  answer[7], answer[8] = tightest.capacity, lease_us or 0
  return answer
end

-- Stores the meters that several calls have taken permits of, once each.
local function store_taken(loaded)
  for _, m in pairs(loaded) do
    if m.later == 'taken' then
      m.later = false
      m.take()
    end
  end
end
