-- @include scope

-- Limits by name, as this script has read them: see meter.lua.
local limits = {}
