-- Sets or removes the override of a key.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2] key
-- ARGV[3] actor
-- ARGV[4] the override as text; '' removes the override, and no other arguments follow
-- ARGV[5] kind of limit for which the override is; on a limit of another kind it has no effect
-- ARGV[6] permits per period, or 0 for the limit's rate
-- ARGV[7] period in microseconds; ignored if ARGV[6] is 0
-- ARGV[8] capacity, or 0 for the limit's capacity
-- Returns 1, or 0 if the limit does not exist
-- @include record
local name, key, actor, text, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local n, per_us, capacity = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

if call('EXISTS', hg('limit', name)) == 0 then return 0 end
if text == '' then
  local r = read_record(name, key)
  if r.source == '-' then return 1 end
  log_override('unset', name, actor, key, r, '')
  clear_override(r)
  change_rate(name, key, r)
  return 1
end
drop_ended(name)
local r = read_record(name, key)
log_override('set', name, actor, key, r, text)
r.source, r.kind, r.n, r.per_us, r.capacity = 'set', kind, n, per_us, capacity
change_rate(name, key, r)
return 1
