-- @include count

-- Forgets a lane of which nothing waits and nobody is called; and with the last
-- one all that a lost record, or a process that died, may have left behind.
local function leave_if_empty(lane)
  if call('EXISTS', hg('lane', lane), hg('called', lane)) > 0 then return end
  call('ZREM', hg('lanes'), lane)
  if call('EXISTS', hg('lanes')) == 1 then
    call('HDEL', hg('tickets'), lane)
    call('SREM', hg('full'), lane)
  else
    call('DEL', hg('tickets'), hg('full'), hg('reserved'), hg('demand'), hg('sharing'), hg('patience'))
  end
end

-- Tells who gives turns that a called job has come, if a turn was refused
-- because too many had not, or if it came late: its queue takes jobs after all.
local function make_room(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
end

-- Forgets all of a job but its place.
local function forget_record(job, patience)
  call('HDEL', hg('jobs'), job)
  if patience == '1' then call('ZREM', hg('patience'), job) end
end
