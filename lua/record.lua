-- Writes down what a process did: a summary in the stream, and totals.
-- Touches: history (w), totals (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] summary
-- ARGV[2] how far back the stream reaches, in microseconds
-- ARGV[3] how many fields the totals may have
-- ARGV[4] field that is counted in place of one too many
-- ARGV[5…] field of the totals, how much is added to it, for each
-- Returns the summary's place in the stream
-- @include scope
local summary, reach_us, most, rest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

for i = 5, #ARGV, 2 do
  local field = ARGV[i]
  if call('HEXISTS', hg('totals'), field) == 0 and call('HLEN', hg('totals')) >= most then
    field = rest .. string.match(field, '\n[^\n]*$')
  end
  call('HINCRBY', hg('totals'), field, ARGV[i + 1])
end
local oldest_ms = int(floor((now_us - reach_us) / 1000))
local id = call('XADD', hg('history'), 'MINID', '~', oldest_ms, '*', 's', summary)
call('PEXPIRE', hg('history'), int(reach_us / 1000))
return id
