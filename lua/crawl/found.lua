-- Notes URLs that a page of a crawl has linked.
-- Touches: crawl (rw), crawl_hosts (rw), crawl_seen (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the crawl that the page belongs to
-- ARGV[3] milliseconds after which the crawl is forgotten
-- ARGV[4] how many URLs the crawl may have
-- ARGV[5] how many on a host
-- ARGV[6] digest of the page
-- ARGV[7…] digest, URL, host and state of each: it waits, or why it is left out
-- Returns 1, or 0 if another crawl of that name has begun
-- @include crawl
local crawl, start, life, from = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local most, most_of_host = tonumber(ARGV[4]), tonumber(ARGV[5])
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)
if call('HGET', about, 'start') ~= start then return 0 end

for i = 7, #ARGV, 4 do
  local digest, url, host, state = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local was = read_record(seen, digest)
  if may_come(was) then
    if is_page(state) and pages_left(about, most) <= 0 then
      state = 'b'
    elseif has_room(state) and host_pages_left(hosts, host, most_of_host) <= 0 then
      state = 'h'
    end
    if is_page(state) then
      write_record(seen, digest, state, from, url, '')
      move_page(about, hosts, host, was, state)
    else
      leave_out(about, seen, hosts, digest, was, state, from, url, host, most)
    end
  end
end
for _, key in ipairs({ about, seen, hosts }) do call('PEXPIRE', key, life) end
return 1
