-- Sets the overrides of a limit that a config file has. The same text again changes nothing, even
-- if a key was set otherwise since. Another text replaces the overrides that it changes, and
-- removes those that only the old text had.
-- Touches: blocked (r), changes (w), ending (w), limit (rw), m (rw), overrides (rw),
--   summaries (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] kind that the limit must have
-- ARGV[3] the text, one key a line: key, tab, what it counts as
-- ARGV[4…] key, permits per period or 0, period in microseconds, capacity or 0,
--   for each
-- Returns 1, or 0 if there was nothing to do
-- @include record
local name, kind, words = ARGV[1], ARGV[2], ARGV[3]
local limit = hg('limit', name)

local were = call('HGET', limit, 'keys_file') or ''
if words == were or call('EXISTS', limit) == 0 then return 0 end
call('HSET', limit, 'keys_file', words)
local said, now_said = {}, {}
for key, what in string.gmatch(were, '([^\t\n]*)\t([^\n]*)') do said[key] = what end
for key, what in string.gmatch(words, '([^\t\n]*)\t([^\n]*)') do now_said[key] = what end

for i = 4, #ARGV, 4 do
  local key = ARGV[i]
  if said[key] ~= now_said[key] then
    local r = read_record(name, key)
    r.source, r.kind, r.n, r.per_us, r.capacity, r.ends_us = 'file', kind, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), 0
    change_rate(name, key, r)
  end
end
for key in pairs(said) do
  local r = not now_said[key] and read_record(name, key)
  if r and r.source == 'file' then
    restore(r)
    change_rate(name, key, r)
  end
end
return 1
