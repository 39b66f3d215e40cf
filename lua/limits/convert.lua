-- Converts the states of meters to the new rate of their limit, with a new expiry.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2…] keys
-- Returns the limit if its calendar must be extended first, or '', and now_us
-- @include meter
local name = ARGV[1]

for i = 2, #ARGV do
  local m, store_state = load_meter(name, ARGV[i])
  if m and m.stale then return { name, now_us } end
  if store_state and call('EXISTS', m.state) == 1 then store_state() end
end
return { '', now_us }
