-- @include empty

-- Tells the leader that a granted job has come, if a turn was refused because too many had not, or
-- if the job came late: its queue takes jobs after all.
local function make_room(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
end
