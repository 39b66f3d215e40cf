-- @include scope

-- What a counter says: 0 where there is none, or nothing that a script has written.
local function counted(text) return math.min(math.max(0, floor(tonumber(text) or 0)), FAR) end
