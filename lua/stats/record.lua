-- Appends a process's summary to the stream and adds to the totals. A repeated call does nothing.
-- Touches: admitted (w), stats (w), totals (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] summary
-- ARGV[2] how far back the stream reaches, in microseconds
-- ARGV[3] largest number of fields of the totals
-- ARGV[4] name that replaces a queue and a task type beyond that number
-- ARGV[5] process, which makes one call at a time
-- ARGV[6] number of the call, the same for its repeats
-- ARGV[7…] for each total: queue, task type and outcome, one a line, and how much to add
-- Returns 1, or 0 for a repeated call
-- @include scope
local summary, reach_us, most, rest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local process, number = ARGV[5], ARGV[6]

if call('SET', hg('admitted', process), number, 'PX', int(GRACE), 'GET') == number then return 0 end
local totals = hg('totals')
local full = call('HLEN', totals) + (#ARGV - 6) / 2 > most
for i = 7, #ARGV, 2 do
  local field = ARGV[i]
  if full and call('HEXISTS', totals, field) == 0 and call('HLEN', totals) >= most then
    field = string.gsub(field, '[^\n]*\n', rest .. '\n')
  end
  call('HINCRBY', totals, field, ARGV[i + 1])
end
local oldest_ms = int(floor((now_us - reach_us) / 1000))
call('XADD', hg('stats'), 'MINID', '~', oldest_ms, '*', 's', summary)
call('PEXPIRE', hg('stats'), int(reach_us / 1000))
return 1
