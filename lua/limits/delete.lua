-- Deletes a limit, and records that someone deleted it on purpose. The first jobs that wait for the
-- limit ask for permits again, and their workers decide what happens to them. A repeat of the same
-- call changes nothing, and returns what the first call returned. A sending that arrives after a
-- later call of its caller changes nothing.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] actor
-- ARGV[3] caller: ID of a caller that makes one call at a time
-- ARGV[4] number of the call; a caller's numbers grow, and only repeats of the call have the same
--   number
-- Returns 1, or 0 if the limit did not exist
-- @include change
-- @include note_call
local name, actor, caller, call_number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local summary, text = call('HGET', hg('summaries'), name), call('HGET', hg('limit', name), 'text')
local last = note_call(caller, call_number, call_number .. (summary and ' 1' or ' 0'))
if last then return tonumber(string.match(last, '^%d+ (%d)$') or nil) or 0 end
call('SREM', hg('limits'), name)
call('HDEL', hg('summaries'), name)
if not summary then return 0 end
call('HSET', hg('deleted'), name, summary)
call('UNLINK', hg('limit', name), hg('blocked', name), hg('overrides', name), hg('ending', name), hg('missing', name))
publish_change('limit', name)
log_change('deleted', name, actor, 'from', text or '')
return 1
