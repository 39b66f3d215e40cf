-- Writes down what a process did: a summary in the stream, totals, and the same counts by
-- the minute and by the hour. The same call again writes nothing.
-- Touches: admitted (w), history (w), hours (w), minutes (w), totals (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] summary
-- ARGV[2] how far back the stream reaches, in microseconds
-- ARGV[3] how many fields the totals may have
-- ARGV[4] name that is counted in place of one too many
-- ARGV[5] process: a name of who makes one call at a time
-- ARGV[6] number of its call, which only repeats of this very call share
-- ARGV[7…] names and what is counted of them, one a line, how much is added to it, for each;
-- in the totals are those with two names
-- Returns 1, or 0 if that was written before
-- @include scope
local summary, reach_us, most, rest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local process, number = ARGV[5], ARGV[6]

local MINUTE_US, HOUR_US, DAY_US = 60000000, 3600000000, 86400000000
-- Minutes are kept for a day, hours for 30. So many fields are a hundred for each.
local MINUTES_MS, HOURS_MS, MOST_MINUTES, MOST_HOURS = 90000000, 2678400000, 6000, 2400

-- Adds to a hash what is new, where its names match: as that of a part, if there is one,
-- and then the hash lives for so long.
local function count(key, most_fields, which, part, live_ms)
  local before = part and int(part) .. '\n' or ''
  local full = call('HLEN', key) + (#ARGV - 6) / 2 > most_fields
  for i = 7, #ARGV, 2 do
    local field = before .. ARGV[i]
    if full and call('HEXISTS', key, field) == 0 and call('HLEN', key) >= most_fields then
      field = before .. string.gsub(ARGV[i], '[^\n]*\n', rest .. '\n')
    end
    if string.find(ARGV[i], which) then call('HINCRBY', key, field, ARGV[i + 1]) end
  end
  if live_ms then call('PEXPIRE', key, live_ms) end
end

if call('SET', hg('admitted', process), number, 'PX', int(GRACE), 'GET') == number then return 0 end
local hour, day = floor(now_us / HOUR_US), floor(now_us / DAY_US)
count(hg('totals'), most, '\n.*\n')
count(hg('minutes', int(hour)), MOST_MINUTES, '', floor(now_us % HOUR_US / MINUTE_US), MINUTES_MS)
count(hg('hours', int(day)), MOST_HOURS, '', floor(now_us % DAY_US / HOUR_US), HOURS_MS)
local oldest_ms = int(floor((now_us - reach_us) / 1000))
call('XADD', hg('history'), 'MINID', '~', oldest_ms, '*', 's', summary)
call('PEXPIRE', hg('history'), int(reach_us / 1000))
return 1
