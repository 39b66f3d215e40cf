-- Notes URLs that a crawl has found, or looks what is known of them.
-- Touches: crawl (r), crawl_hosts (rw), crawl_seen (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] run
-- ARGV[3] milliseconds after which the crawl is forgotten
-- ARGV[4] how many URLs the run may find: new ones beyond that are only counted
-- ARGV[5] how many on a host
-- ARGV[6…] URL, host, depth, state of a new one, for each; the state "=" is for
--   one whose links have been followed to the depth, "b" for one that is beyond, and
--   "?" for one that is only looked at
-- Returns a letter for each: n if it is new, b if there is no room for it, k if it is
--   known, and d if it is with a smaller depth, and its links are to be followed to
--   this one, or it was only looked at; nothing if the run is over
-- @include crawl
local crawl, run, life = ARGV[1], ARGV[2], ARGV[3]
local most, most_of_host = tonumber(ARGV[4]), tonumber(ARGV[5])
if call('HGET', hg('crawl', crawl), 'run') ~= run then return '' end
local seen, hosts = hg('crawl_seen', crawl .. '|' .. run), hg('crawl_hosts', crawl .. '|' .. run)

local left = {}
local function room(host)
  left[''] = left[''] or pages_left(hosts, '', most)
  left[host] = left[host] or pages_left(hosts, host, most_of_host)
  return math.min(left[''], left[host])
end

local reply = {}
for i = 6, #ARGV, 4 do
  local page, host, depth, first = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local state, known, owner = read_page(seen, page)
  local fetched = state == 'd' or state == 'u' or state == 'r'
  local verdict = 'k'
  if not state and first == '=' then
    -- It was never found.
  elseif not state and (room(host) <= 0 or first == 'b') then
    verdict = 'b'
    if first ~= '?' then call('HINCRBY', hosts, '|b', 1) end
    -- A host without a page is not counted: a site can make up hosts without end.
    if first ~= '?' and left[host] < most_of_host then call('HINCRBY', hosts, host .. '|b', 1) end
  elseif not state then
    verdict = 'n'
    left[''], left[host] = left[''] - 1, left[host] - 1
    if first ~= '?' then
      write_page(seen, page, first, depth, '')
      move_page(hosts, host, nil, first)
    end
  elseif depth > known and (first == '?' or fetched and first ~= '=') then
    verdict = 'd'
  elseif depth > known then
    write_page(seen, page, state, depth, owner)
  end
  reply[#reply + 1] = verdict
end
call('PEXPIRE', seen, life)
call('PEXPIRE', hosts, life)
return table.concat(reply)
