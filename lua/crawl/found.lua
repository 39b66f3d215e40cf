-- Records the URLs that a page of a crawl links.
-- Touches: crawl (rw), crawl_hosts (rw), crawl_seen (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the page's crawl
-- ARGV[3] milliseconds after which the crawl is forgotten
-- ARGV[4] maximum number of URLs of the crawl
-- ARGV[5] maximum number of URLs of a host
-- ARGV[6] page
-- ARGV[7…] for each link: digest, URL, host, and state if the URL is new
-- Returns nothing if another crawl of that name has started; else for each link:
--   the new state of the URL, or "" if the URL is known. The caller enqueues a job for each URL
--   that waits. The state of a URL that this page has linked before, and that no job has taken, is
--   returned again, because the page's job may have died before it enqueued the URL's job.
-- @include crawl
local crawl, start, life, from = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local max_urls, max_host_urls = tonumber(ARGV[4]), tonumber(ARGV[5])
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)
if call('HGET', about, 'start') ~= start then return {} end

local states = {}
for i = 7, #ARGV, 4 do
  local digest, url, host, state = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local was, linked_by, _, owner = read_record(seen, digest)
  if may_get_job(was) then
    if is_page(state) and pages_left(about, max_urls) <= 0 then
      state = 'b'
    elseif takes_room(state) and host_pages_left(hosts, host, max_host_urls) <= 0 then
      state = 'h'
    end
    if is_page(state) then
      write_record(seen, digest, state, from, url, '')
      move_page(about, hosts, host, was, state)
    else
      leave_out(about, seen, hosts, digest, was, state, from, url, host, max_urls)
    end
  elseif is_waiting(was) and owner == '' and linked_by == from then
    state = was
  else
    state = ''
  end
  states[#states + 1] = state
end
for _, key in ipairs({ about, seen, hosts }) do call('PEXPIRE', key, life) end
return states
