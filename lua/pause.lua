-- Pauses a limit, or resumes it.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] 1 pauses, 0 resumes
-- Returns 1, or 0 if there is no such limit
-- @include change
-- @include gist
local name, pause = ARGV[1], ARGV[2]
local key = P .. 'limit:' .. name

if call('EXISTS', key) == 0 then return 0 end
if pause == '1' then call('HSET', key, 'paused', '1') else call('HDEL', key, 'paused') end
store_gist(key)
call('HINCRBY', key, 'version', '1')
changed('limit', name)
return 1
