-- @include scope

-- Calls a function, and returns nothing if it fails because of data that no script has written, so
-- that only this call fails. A key of a wrong type fails the whole script: then the caller removes
-- the key and runs the script again.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  if string.find(type(result) == 'string' and result or result.err, 'WRONGTYPE', 1, true) then error(result, 0) end
end
