-- @include scope

local KEPT = '500' -- about so many changes are remembered

-- Writes down for people who changed what of a limit: a list of names and values
-- beside it.
local function note(what, name, by, ...)
  call('XADD', hg('changelog'), 'MAXLEN', '~', KEPT, '*', 'what', what, 'limit', name, 'by', by, ...)
end
