-- Deletes a limit, and remembers that it was deleted on purpose. Jobs that wait
-- for it are called back to learn it.
-- Touches: blocked (w), changes (w), deleted (w), ending (w), limit (rw),
--   limits (w), overrides (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- Returns 1, or 0 if there was none
-- @include change
local name = ARGV[1]

local summary = call('HGET', hg('limit', name), 'summary')
call('SREM', hg('limits'), name)
if not summary then return 0 end
call('HSET', hg('deleted'), name, summary)
call('UNLINK', hg('limit', name), hg('blocked', name), hg('overrides', name), hg('ending', name))
changed('limit', name)
return 1
