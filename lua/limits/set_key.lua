-- Has a key of a limit count otherwise than the limit says, at once and for
-- everybody.
-- Touches: blocked (r), changelog (w), changes (w), ending (rw), limit (rw), m (rw),
--   overrides (rw), summaries (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] kind that the limit must have for that
-- ARGV[4] permits per period, or 0 for the limit's rate
-- ARGV[5] period in microseconds
-- ARGV[6] capacity, or 0 for the limit's
-- ARGV[7] microseconds until the end, or 0 for none
-- ARGV[8] who says so
-- ARGV[9] the override as a text
-- Returns 1, or 0 if there is no such limit
-- @include record
-- @include note
local name, key, kind = ARGV[1], ARGV[2], ARGV[3]
local n, per_us, capacity, for_us = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local by, text = ARGV[8], ARGV[9]

if call('EXISTS', hg('limit', name)) == 0 then return 0 end
drop_ended(name)
local r = read_record(name, key)
r.source, r.kind, r.n, r.per_us, r.capacity = 'set', kind, n, per_us, capacity
r.ends_us = for_us > 0 and math.min(now_us + for_us, FAR) or 0
change_rate(name, key, r)
note('set', name, by, 'key', key, 'to', text)
return 1
