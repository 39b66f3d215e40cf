-- @include refused

-- Records that a call was served under a meter after refusals. If only one job was refused, it goes to
-- the end of its lane.
local function note_served(meter)
  local name = call('GET', hg('refused', meter))
  if not name or tonumber(name) then return end
  call('SET', hg('refused', meter), int(now_us), 'PX', int(REFUSED_MS))
  local r, queue, id = refused_alone(name)
  if r then move_to(r.lane, queue, id, last_ticket(r.lane)) end
end
