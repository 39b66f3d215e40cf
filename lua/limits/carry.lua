-- Carries meters of a limit over to its new rate: their state is stored again, for as long as it
-- matters from now on.
-- Touches: blocked (r), limit (r), m (rw), overrides (r), summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] limit
-- ARGV[2…] keys
-- Returns the limit if its calendar must be extended first, or '', and now_us
-- @include meter
local name = ARGV[1]

for i = 2, #ARGV do
  local m, keep = load_meter(name, ARGV[i])
  if m and m.stale then return { name, now_us } end
  if keep and call('EXISTS', m.state) == 1 then keep() end
end
return { '', now_us }
