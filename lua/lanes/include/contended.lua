-- @include scope

-- The first of the meters at which a lane waits, or nil.
local function contended(ids)
  local marks = call('HMGET', hg('contended'), unpack(ids))
  for i = 1, #marks do
    if marks[i] then return ids[i] end
  end
end
