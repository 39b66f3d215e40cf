-- Converts the states of a limit's meters to the limit's new rate, and sets their new expiry.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2…] keys
-- Returns two values: the limit if Go must extend its calendar and call again, else ''; and now_us
-- @include meter
local name = ARGV[1]

for i = 2, #ARGV do
  local m, store_state = load_meter(name, ARGV[i])
  if m and m.stale then return { name, now_us } end
  if store_state and call('EXISTS', m.state) == 1 then store_state() end
end
return { '', now_us }
