-- Deletes a limit, and remembers that it was deleted on purpose. Jobs that wait for it come back
-- and learn it. A repeat of the same call changes nothing, and gets the same answer.
-- Touches: admitted (rw), blocked (w), changelog (w), changes (w), deleted (w),
--   ending (w), limit (rw), limits (w), overrides (w), summaries (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] actor
-- ARGV[3] caller: a name that makes one call at a time
-- ARGV[4] number of its call, which only repeats of this call share
-- Returns 1, or 0 if there was none
-- @include change
local name, actor, caller, call_number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local admitted = hg('admitted', caller)

if call('GET', admitted) == call_number then return 1 end
local summary, text = call('HGET', hg('summaries'), name), call('HGET', hg('limit', name), 'text')
call('SREM', hg('limits'), name)
call('HDEL', hg('summaries'), name)
if not summary then return 0 end
call('SET', admitted, call_number, 'PX', int(GRACE_MS))
call('HSET', hg('deleted'), name, summary)
call('UNLINK', hg('limit', name), hg('blocked', name), hg('overrides', name), hg('ending', name))
publish_change('limit', name)
log_change('deleted', name, actor, 'from', text or '')
return 1
