-- Defines a limit. What a file says is the ground: the same words again change
-- nothing, even where a `set` has changed the limit since.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] who says it: file or set
-- ARGV[3] the definition as one text
-- ARGV[4…] field, value of the definition
-- Returns 0 unchanged, 1 changed, 2 the file's new words replaced a `set`
-- @include change
-- @include gist
local name, source, text = ARGV[1], ARGV[2], ARGV[3]
local key = P .. 'limit:' .. name

local was_text, was_file, paused, version = unpack(call('HMGET', key, 'text', 'file', 'paused', 'version'))
if text == (source == 'file' and was_file or was_text) then return 0 end
local replaced = source == 'file' and was_file and was_file ~= was_text

call('DEL', key)
call('HSET', key, 'text', text, 'since_us', int(now_us), 'version', int((version or 0) + 1), unpack(ARGV, 4))
if paused then call('HSET', key, 'paused', paused) end
store_gist(key)
local file = source == 'file' and text or was_file
if file then call('HSET', key, 'file', file) end
call('SADD', P .. 'limits', name)
changed('limit', name)
return replaced and 2 or 1
