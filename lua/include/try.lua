-- @include scope

-- Calls a function, and returns nothing if it fails because Redis has data that no script has
-- written: then only this one call fails. A key of a wrong type ends the whole script, so that the
-- caller removes the key and runs the script again.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  if string.find(type(result) == 'string' and result or result.err, 'WRONGTYPE', 1, true) then error(result, 0) end
end
