-- @include scope

-- Stores a text that begins with the number of a caller's call. The numbers of a caller grow. If the
-- stored text is of the same call or of a later one, note_call stores nothing and returns that text:
-- this sending of the call is a repeat, or was delayed. Otherwise note_call returns nil.
local function note_call(caller, call_number, text)
  local last = call('SET', hg('admitted', caller), text, 'PX', int(CALL_MS), 'GET')
  if not last or (string.match(last, '^%d+') or 0) + 0 < call_number + 0 then return nil end
  call('SET', hg('admitted', caller), last, 'PX', int(CALL_MS))
  return last
end
