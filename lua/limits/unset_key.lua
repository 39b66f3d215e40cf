-- Has a key of a limit count as the limit says again.
-- Touches: blocked (r), changelog (w), changes (w), ending (w), limit (rw), m (rw),
--   overrides (rw), summaries (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] who says so
-- Returns 1, or 0 if there is no such limit
-- @include record
-- @include note
local name, key, by = ARGV[1], ARGV[2], ARGV[3]

if call('EXISTS', hg('limit', name)) == 0 then return 0 end
local r = read_record(name, key)
if r.source == '-' then return 1 end
restore(r)
change_rate(name, key, r)
note('unset', name, by, 'key', key)
return 1
