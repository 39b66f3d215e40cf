-- Defines a limit. The script ignores a definition of the config that equals the config's previous
-- one, so that a change at run time outlasts a restart.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] source of the definition: file (the config), again (the config, because Redis has lost
--   the limit), set (at run time) or unset (the config's previous one, in place of one set at run time)
-- ARGV[3] the definition as one text
-- ARGV[4] actor
-- ARGV[5] attempt: 1 when the caller sends the call for the first time, 2 and more in a repeat
-- ARGV[6…] name, value of each field of the definition
-- Returns a list of
--   changed        0 unchanged, 1 changed, 2 the config replaced a definition set at run time
--   rate_changed   1 if the states of the limit's meters must be converted to another rate, else 0
--   had_overrides  1 if the config had overrides for the limit before, else 0
-- @include meter
-- @include change
-- @include summary
local name, source, text, actor, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit = hg('limit', name)

local old_text, old_file_text, paused, blocked_us, overrides, keys_file =
  unpack(call('HMGET', limit, 'text', 'file', 'paused', 'blocked_us', 'overrides', 'keys_file'))
local old_summary = call('HGET', hg('summaries'), name)
if old_text then
  old_summary = store_summary(name) -- an operator may have edited the limit's hash
  if not load_meter(name, '') then old_text, old_file_text, old_summary = false, false, false end -- fields are missing
end
-- A limit that was set or deleted at run time after the loss stays set or deleted.
if source == 'again' and old_text then
  if not old_file_text then call('HSET', limit, 'file', text) end
  return { 0, 0, keys_file and 1 or 0 }
end
if source == 'again' and call('HEXISTS', hg('deleted'), name) == 1 then return { 0, 0, 0 } end
if source == 'again' then source = 'file' end
-- A config that defines the limit differently meanwhile has ended the change at run time.
if source == 'unset' and text ~= old_file_text then return { 0, 0, keys_file and 1 or 0 } end
if old_text and (text == old_text or source == 'file' and text == old_file_text) then
  if source == 'file' then call('HSET', limit, 'file', text) end
  return { 0, attempt ~= '1' and 1 or 0, keys_file and 1 or 0 } -- the first attempt may have stored it
end
local replaced = source == 'file' and old_text and old_text ~= old_file_text
old_summary = old_summary or call('HGET', hg('deleted'), name)

call('DEL', limit)
call('HSET', limit, 'text', text, 'since_us', int(now_us), 'by', actor, unpack(ARGV, 6))
if paused then call('HSET', limit, 'paused', paused) end
if blocked_us then call('HSET', limit, 'blocked_us', blocked_us) end
if overrides then call('HSET', limit, 'overrides', overrides) end
if keys_file then call('HSET', limit, 'keys_file', keys_file) end
local file_text = source == 'file' and text or old_file_text
if file_text then call('HSET', limit, 'file', file_text) end
local summary = store_summary(name)
call('SADD', hg('limits'), name)
call('HDEL', hg('deleted'), name)
call('UNLINK', hg('missing', name))
publish_change('limit', name)
log_change(source == 'file' and 'defined' or source, name, actor, 'from', old_text or '', 'to', text)

-- Returns kind, n and period. Fixed windows that have these in common may differ in the calendar.
local function rate(summary) return string.match(summary, '^%S+ %S+ %S+') end
local rate_changed = overrides or old_summary and (rate(old_summary) ~= rate(summary) or string.find(summary, '^fixed_window'))
return { replaced and 2 or 1, rate_changed and 1 or 0, keys_file and 1 or 0 }
