-- @include wake_leader

-- Notifies the dispatcher that a limit or a meter has changed. Changes are numbered, so that the
-- dispatcher notices a lost notification.
local function publish_change(kind, name)
  wake_leader(kind .. ' ' .. int(call('INCR', hg('changes'))) .. ' ' .. name)
end

-- Reports whether a meter is contended: whether a lane waits at it.
local function is_contended(id)
  return call('HEXISTS', hg('contended'), id) == 1
end

local KEPT = '500' -- approximate number of entries that the changelog keeps

-- Adds an entry to the changelog. The arguments after actor are names and values of further fields.
local function log_change(what, name, actor, ...)
  call('XADD', hg('changelog'), 'MAXLEN', '~', KEPT, '*', 'what', what, 'limit', name, 'by', actor, ...)
end
