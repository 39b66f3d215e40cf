-- Applies the config's overrides for a limit. If their text equals the previous text, nothing
-- changes, so that overrides set at run time outlast a restart. If the texts differ, new and
-- changed overrides are set. The script removes overrides that only the previous text had, except
-- for keys whose present override was set at run time.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] kind of limit for which the overrides are; they have no effect on a limit of another kind
-- ARGV[3] text with a line for each override: key, tab, override
-- ARGV[4…] for each override: key, permits per period, period in microseconds, capacity. 0
--   permits or 0 capacity stand for the limit's own value
-- Returns 1, or 0 if the text equals the previous text or the limit does not exist
-- @include record
local name, kind, text = ARGV[1], ARGV[2], ARGV[3]
local limit = hg('limit', name)

local old_text = call('HGET', limit, 'keys_file') or ''
if text == old_text or call('EXISTS', limit) == 0 then return 0 end
call('HSET', limit, 'keys_file', text)
local old, new, logged = {}, {}, 0
for key, override in string.gmatch(old_text, '([^\t\n]*)\t([^\n]*)') do old[key] = override end
for key, override in string.gmatch(text, '([^\t\n]*)\t([^\n]*)') do new[key] = override end

-- The changelog gets the first changes alone, because a config can have thousands of overrides.
local function log_defined(key, r, text)
  logged = logged + 1
  if logged <= 20 then log_override('defined', name, '', key, r, text) end
end
for i = 4, #ARGV, 4 do
  local key = ARGV[i]
  if old[key] ~= new[key] then
    local r = read_record(name, key)
    log_defined(key, r, string.match(new[key], '^%S+ (.*)'))
    r.source, r.kind, r.n, r.per_us, r.capacity = 'file', kind, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
    change_rate(name, key, r)
  end
end
for key in pairs(old) do
  local r = not new[key] and read_record(name, key)
  if r and r.source == 'file' then
    log_defined(key, r, '')
    clear_override(r)
    change_rate(name, key, r)
  end
end
return 1
