-- Deletes the state of a meter, unblocks the meter, and deletes the feedback about its key. An
-- override of the key stays. Permits that were taken before cannot be given back.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] actor
-- Returns 1, or 0 if the limit does not exist
-- @include leases
-- @include record
local name, key, actor = ARGV[1], ARGV[2], ARGV[3]
local id = name .. '|' .. key

local kind = call('HGET', hg('limit', name), 'kind')
if not kind then return 0 end
local state = hg('m', kind .. ':' .. id)
call('UNLINK', state .. '\n', unpack(lease_sets(state)))
if kind ~= 'concurrency' and kind ~= 'sliding_log' then call('SET', state, int(now_us + 1), 'PX', int(GRACE_MS)) end
call('ZREM', hg('blocked', name), key)
if call('HEXISTS', hg('overrides', name), key) == 1 then
  forget_feedback(name, key, read_record(name, key))
end
publish_change('meter', id)
log_change('reset', name, actor, 'key', key)
return 1
