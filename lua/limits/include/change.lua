-- @include scope

-- Tells the process that gives turns of a change to a limit, or to one meter:
-- what it knows of them is void. Changes are numbered, so that one whose word
-- was lost is noticed.
local function changed(kind, name)
  call('PUBLISH', hg('wake'), kind .. ' ' .. int(call('INCR', hg('changes'))) .. ' ' .. name)
end

-- Reports whether a lane waits at a meter.
local function waited_for(id)
  return call('HEXISTS', hg('contended'), id) == 1
end

local KEPT = '500' -- about so many changes are remembered

-- Writes down for people who changed what of a limit: a list of names and values
-- beside it.
local function note(what, name, by, ...)
  call('XADD', hg('changelog'), 'MAXLEN', '~', KEPT, '*', 'what', what, 'limit', name, 'by', by, ...)
end
