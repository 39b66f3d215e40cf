-- Pauses a limit, or resumes the limit.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] 1 pauses, 0 resumes
-- ARGV[3] actor
-- Returns 1, or 0 if the limit does not exist
-- @include change
-- @include summary
local name, pause, actor = ARGV[1], ARGV[2], ARGV[3]
local limit = hg('limit', name)

if call('EXISTS', limit) == 0 then return 0 end
if pause == '1' then call('HSET', limit, 'paused', '1') else call('HDEL', limit, 'paused') end
store_summary(name)
publish_change('limit', name)
log_change(pause == '1' and 'paused' or 'resumed', name, actor)
return 1
