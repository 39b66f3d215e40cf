-- @include scope

-- The limits that this script has read, by name: see meter.lua.
local limits = {}
