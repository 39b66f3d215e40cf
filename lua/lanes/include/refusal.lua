-- @include refused

-- Returns when another job was served under a meter after refusals, or 0 if none was since.
local function served_us(meter) return tonumber(call('GET', hg('refused', meter)) or nil) or 0 end

-- Records that a job was refused under a meter, which is blocked until until_us. Reports whether other
-- jobs were refused, too, since a call was last served. The first of these goes back to the head of its
-- lane.
local function note_refused(meter, name, until_us)
  local before = call('GET', hg('refused', meter))
  local alone = not before or before == name or tonumber(before)
  call('SET', hg('refused', meter), alone and name or '', 'PX', int(REFUSED_MS + ceil((until_us - now_us) / 1000)))
  if alone then return false end
  local r, queue, id = refused_alone(before)
  if r then move_to(r.lane, queue, id, r.ticket - TAIL + HEAD) end
  return true
end

-- Lets the first job of a lane that was not refused try next.
local function let_another_try(lane, queue)
  local waiting = hg('lane', lane)
  if call('ZCOUNT', waiting, int(NEXT_TRY), int(NEXT_TRY)) > 0 then return end
  local id = call('ZRANGEBYSCORE', waiting, int(HEAD / 2), int(TAIL), 'LIMIT', 0, 1)[1]
  if id then move_to(lane, queue, id, NEXT_TRY) end
end
