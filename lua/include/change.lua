-- @include scope

-- Tells the process that gives turns of a change to a limit, or to one meter:
-- what it knows of them is void. Changes are numbered, so that one whose word
-- was lost is noticed.
local function changed(kind, name)
  -- The old pump's way, until it goes: each meter that it would look at is due.
  local ids = kind == 'meter' and { name } or call('ZRANGE', hg('due'), 0, -1)
  for i = 1, #ids do
    local ours = kind == 'meter' or string.sub(ids[i], 1, #name + 1) == name .. '|'
    if ours and call('EXISTS', hg('q', ids[i])) == 1 then call('ZADD', hg('due'), 'LT', int(now_us), ids[i]) end
  end

  call('PUBLISH', hg('wake'), kind .. ' ' .. int(call('INCR', hg('changes'))) .. ' ' .. name)
end

-- Reports whether a lane waits at a meter.
local function waited_for(id)
  return call('HEXISTS', hg('contended'), id) == 1 or call('EXISTS', hg('q', id)) == 1
end
