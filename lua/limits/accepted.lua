-- Hears that the other side took a call: the refusals before are over, and a key
-- that was slowed down gets faster. Or that it was too busy to: a key that adapts
-- slows down as by a refusal, and nothing is shut.
-- Touches: blocked (r), changes (w), ending (rw), limit (rw), m (rw), overrides (rw),
--   summaries (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] when it had been allowed, in microseconds
-- ARGV[2] how long the other side took, in microseconds, or -1 where it was too busy
-- ARGV[3…] limit, key of each meter
-- Returns how many of the meters had something to learn
-- @include adapt
local at_us, latency_us = tonumber(ARGV[1]), tonumber(ARGV[2])

-- A call that was underway when another was refused says nothing of the time since.
local function accepted(name, key)
  drop_ended(name)
  local r = read_record(name, key)
  local before = r.refused
  if at_us > r.refused_us then r.refused = 0 end
  local least, wanted_us = adapts(name)
  if not least or r.bearable == FULL and r.share == FULL and wanted_us == 0 then
    if r.refused == before then return 0 end
    store_record(name, key, r)
    drop_if_plain(name, key, r)
    return 1
  end
  if at_us > r.fell_us then rise(r) else r.heard_us = now_us end
  if wanted_us > 0 then r.latency_us = math.max(latency_us, floor((r.latency_us + latency_us) / 2)) end
  adapt(name, key, r, least, wanted_us)
  return 1
end

-- Calls that were underway when it was too busy for one tell nothing new.
local function overloaded(name, key)
  drop_ended(name)
  local least, wanted_us = adapts(name)
  local r = read_record(name, key)
  if not least or at_us <= r.refused_us then return 0 end
  fall(name, key, r, least, wanted_us)
  return 1
end

local hear = latency_us < 0 and overloaded or accepted
local learned = 0
for i = 3, #ARGV, 2 do learned = learned + hear(ARGV[i], ARGV[i + 1]) end
return learned
