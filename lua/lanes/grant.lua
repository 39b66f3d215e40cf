-- Gives lanes their turns, in the order given: the first waiting job of a lane
-- is granted if every meter it needs is ready, and its permits are reserved for
-- it; or nothing of it happens. Only meters admit: a leader that errs makes
-- turns unfair, and never exceeds a limit.
-- Safe to repeat: the same call again gives no turns.
-- Touches: admitted (rw), blocked (r), contended (w), deadlines (r), demand (w), full (w),
--   granted (rw), jobs (r), lane (rw), lanes (rw), leader (r), limit (r), m (rw), meters (rw),
--   overrides (r), summaries (r), tickets (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] leader
-- ARGV[2] how far ahead jobs are granted mostly, in microseconds
-- ARGV[3] caller: a name of who makes one call at a time
-- ARGV[4] number of its call, which only repeats of this very call share
-- ARGV[5] 1 the first time that this call is sent, more if it is a repeat
-- ARGV[6…] lane, how far ahead its job may be granted, permits that older lanes hold of
--   each of its meters, separated by commas, for each turn
-- Returns {now_us, names of limits whose calendar must be extended, then for each
--   turn {outcome, job, from when and until when its permits are reserved, 1 if it may have
--   them early}, then
--   for each lane {how many are granted, how far ahead its next job may be granted,
--   what that needs: cost, ready_at_us, known, refill_us, shut, for how many such jobs its permits
--   come at once, for each meter}}; {0}
--   if another process leads; {-1, now_us} if this is a repeat of a call that has
--   granted jobs
-- @include scope
-- @inner
-- @include turns
-- @include try
-- @include cached_replies
local process, far_us, caller, number, again = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

-- Returns the outlook of a line whose data cannot be read: it may try again in a second.
local function unusable(line)
  local out = { line.granted, 0 }
  for _ = 1, #line.ids do
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6] = 1, now_us + 1000000, 1, 1000000, 1, 1
  end
  return out
end

if call('GET', hg('leader')) ~= process then return { 0 } end
if again ~= '1' and call('GET', hg('admitted', caller)) == number then return { -1, now_us } end
local out = { now_us, '' }
for i = 6, #ARGV, 3 do
  local line = line_of(ARGV[i])
  line.turns = line.turns + 1
end
-- A turn that meets data which no script has written is refused for a second. The other turns go
-- on.
for i = 6, #ARGV, 3 do
  out[#out + 1] = try(turn, line_of(ARGV[i]), tonumber(ARGV[i + 1]), ARGV[i + 2], far_us) or { REFUSED }
end
for i = 1, #lines do out[#out + 1] = try(outlook, lines[i], far_us) or unusable(lines[i]) end
store()
if had > 0 then cache_replies(caller, { number }) end
out[2] = table.concat(stale, ' ')
return out
