-- Deletes a limit, and remembers that it was deleted on purpose. Jobs that wait
-- for it are called back to learn it.
-- Touches: blocked (w), changelog (w), changes (w), deleted (rw), ending (w),
--   limit (rw), limits (w), overrides (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] who says so
-- ARGV[3] 1 the first time that this call is sent, more if it is a repeat
-- Returns 1, or 0 if there was none
-- @include change
-- @include note
local name, by, sent = ARGV[1], ARGV[2], ARGV[3]

local summary, text = unpack(call('HMGET', hg('limit', name), 'summary', 'text'))
call('SREM', hg('limits'), name)
if not summary then return sent ~= '1' and call('HEXISTS', hg('deleted'), name) or 0 end -- a repeat has deleted it
call('HSET', hg('deleted'), name, summary)
call('UNLINK', hg('limit', name), hg('blocked', name), hg('overrides', name), hg('ending', name))
changed('limit', name)
note('deleted', name, by, 'from', text or '')
return 1
