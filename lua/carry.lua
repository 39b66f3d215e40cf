-- Carries meters of a limit over to its new rate: what they count is stored once
-- more, for as long as it matters from now on.
-- Touches: limit (r), blocked (r), m (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2…] keys
-- Returns how many there were
-- @include meter
local name = ARGV[1]

local carried = 0
for i = 2, #ARGV do
  local m = load_meter(name, ARGV[i])
  if m and call('EXISTS', m.state) == 1 then
    m.keep()
    carried = carried + 1
  end
end
return carried
