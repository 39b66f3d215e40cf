-- @include scope

-- Notifies the dispatcher of a change to a limit or to one meter, so that it reads them again.
-- Changes are numbered, so that a lost notification is noticed.
local function publish_change(kind, name)
  call('PUBLISH', hg('wake'), kind .. ' ' .. int(call('INCR', hg('changes'))) .. ' ' .. name)
end

-- Reports whether a lane waits at a meter.
local function is_contended(id)
  return call('HEXISTS', hg('contended'), id) == 1
end

local KEPT = '500' -- about so many entries are kept

-- Adds an entry to the changelog, with a list of more names and values.
local function log_change(what, name, actor, ...)
  call('XADD', hg('changelog'), 'MAXLEN', '~', KEPT, '*', 'what', what, 'limit', name, 'by', actor, ...)
end
