-- Hears that the other side took a call: the refusals before are over.
-- Touches: blocked (r), ending (w), limit (rw), m (rw), overrides (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] when it had been allowed, in microseconds
-- ARGV[2] how long the other side took, in microseconds
-- ARGV[3…] limit, key of each meter
-- Returns how many of the meters had something to learn
-- @include record
local at_us, latency_us = tonumber(ARGV[1]), tonumber(ARGV[2])

local learned = 0
for i = 3, #ARGV, 2 do
  local name, key = ARGV[i], ARGV[i + 1]
  local r = read_record(name, key)
  if r.refused > 0 and at_us > r.refused_us then
    r.refused = 0
    store_record(name, key, r)
    drop_if_plain(name, key, r)
    learned = learned + 1
  end
end
return learned
