-- @include scope

-- Calls f, and returns nil if f fails because of corrupt data, so that the rest of the script goes
-- on. If a key has a wrong type, the script fails: then Go removes the key and repeats the script.
local function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  if string.find(type(result) == 'string' and result or result.err, 'WRONGTYPE', 1, true) then error(result, 0) end
end
