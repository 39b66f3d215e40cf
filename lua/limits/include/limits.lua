-- @include scope

-- The limits that this script has read, by name. The function load_meter in meter.lua fills them.
local limits = {}
