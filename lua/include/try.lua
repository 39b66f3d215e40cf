-- @include scope

-- Calls f and returns its result. If f fails because of corrupt data, try returns nil, so that the
-- script goes on. If f fails because a key has a wrong type, the script fails with that error: the
-- Go caller then removes the key and repeats the script.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  if string.find(type(result) == 'string' and result or result.err, 'WRONGTYPE', 1, true) then error(result, 0) end
end
