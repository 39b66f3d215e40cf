-- @include scope

-- Tells who gives turns that a meter, or all of a limit's, may be ready sooner
-- than was said. Changes are numbered, so that a lost word is noticed.
local function changed(kind, name)
  call('PUBLISH', P .. 'wake', kind .. ' ' .. int(call('INCR', P .. 'changes')) .. ' ' .. name)
end
