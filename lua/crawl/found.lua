-- Notes URLs that a crawl has found: new ones, and a larger depth of known ones.
-- Touches: crawl (r), crawl_hosts (rw), crawl_seen (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] run
-- ARGV[3] milliseconds after which the crawl is forgotten
-- ARGV[4] how many URLs the run may find: new ones beyond that are only counted
-- ARGV[5] how many on a host
-- ARGV[6…] URL, host, depth, state of a new one, for each; the state "=" is for
--   one whose links have been followed to the depth, and "b" for one that is beyond
-- Returns how many are new, -1 if the run is over, and then the number, from 0, of
--   each that has been fetched with a smaller depth: its links are to be followed
-- @include crawl
local crawl, run, life = ARGV[1], ARGV[2], ARGV[3]
local most, most_of_host = tonumber(ARGV[4]), tonumber(ARGV[5])
if call('HGET', hg('crawl', crawl), 'run') ~= run then return { -1 } end
local seen = hg('crawl_seen', crawl .. '|' .. run)
local hosts = hg('crawl_hosts', crawl .. '|' .. run)

local left = {}
local function room(host, bound)
  left[host] = left[host] or pages_left(hosts, host, bound)
  return left[host] > 0
end

local reply = { 0 }
for i = 6, #ARGV, 4 do
  local page, host, depth, first = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local state, known, owner = read_page(seen, page)
  local followed = state == 'd' or state == 'u' or state == 'r'
  if not state and first == '=' then
    -- It was never found.
  elseif not state and (first == 'b' or not (room('', most) and room(host, most_of_host))) then
    call('HINCRBY', hosts, '|b', 1)
    -- A host without a page is not counted: a site can make up hosts without end.
    room(host, most_of_host)
    if left[host] < most_of_host then call('HINCRBY', hosts, host .. '|b', 1) end
  elseif not state then
    write_page(seen, page, first, depth, '')
    move_page(hosts, host, nil, first)
    left[''], left[host] = left[''] - 1, left[host] - 1
    reply[1] = reply[1] + 1
  elseif state and depth > known and followed and first ~= '=' then
    reply[#reply + 1] = (i - 6) / 4
  elseif state and depth > known then
    write_page(seen, page, state, depth, owner)
  end
end
call('PEXPIRE', seen, life)
call('PEXPIRE', hosts, life)
return reply
