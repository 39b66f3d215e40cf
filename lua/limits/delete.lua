-- Deletes a limit, and records that someone deleted it on purpose. The first jobs that wait for the
-- limit ask for permits again, and their workers decide what happens to them. A repeat of the same call changes nothing, and returns
-- what the first call returned.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] actor
-- ARGV[3] caller: ID of a caller that makes one call at a time
-- ARGV[4] number of the call; only repeats of the call have the same number
-- Returns 1, or 0 if the limit did not exist
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
call('UNLINK', hg('limit', name), hg('blocked', name), hg('overrides', name), hg('ending', name), hg('missing', name))
publish_change('limit', name)
log_change('deleted', name, actor, 'from', text or '')
return 1
