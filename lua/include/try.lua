-- @include scope

-- Calls f, and returns nil if f fails because of corrupt data, so that the rest of the script goes
-- on. If a key has a wrong type, the whole script fails: the caller removes the key and repeats it.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  if string.find(type(result) == 'string' and result or result.err, 'WRONGTYPE', 1, true) then error(result, 0) end
end
