-- Records the URLs to which a page of a crawl links.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the page's crawl
-- ARGV[3] milliseconds after which Redis deletes the crawl if no script writes to it
-- ARGV[4] maximum number of pages of the crawl. A page is a URL in a state of PAGES, see crawl.lua
-- ARGV[5] maximum number of pages of a host
-- ARGV[6] URL of the page that has the links
-- ARGV[7…] for each link: URL, host, and state. The URL gets this state if no maximum is reached
-- Returns an empty list if Redis has no crawl with that name and start; else for each link
--   waiting        the caller must enqueue a job for the URL. A repeated call for the page returns
--                  waiting again while no job has taken the URL: the page's job may have died
--                  before it enqueued the URL's job
--   another state  the URL is left out for this reason
--   ''             the URL needs no job: it is a page already, or was disallowed before
-- @include crawl
local crawl, start, life, page = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
local max_pages, max_host_pages = tonumber(ARGV[4]), tonumber(ARGV[5])
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)
if call('HGET', about, 'start') ~= start then return {} end

local room = max_pages
for state in pairs(PAGES) do room = room - tonumber(call('HGET', about, 'n:' .. state) or 0) end
local states = {}
for i = 7, #ARGV, 3 do
  local url, host, state = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local old_state, linked_by, owner = read_record(seen, url)
  if is_final(old_state) or PAGES[old_state] then
    state = old_state == 'waiting' and owner == '' and linked_by == page and old_state or ''
  else -- the URL is new, or an earlier call left it out
    if PAGES[state] and room <= 0 then
      state = 'max_pages'
    elseif PAGES[state] and tonumber(call('HGET', hosts, host) or 0) >= max_host_pages then
      state = 'max_host_pages'
    end
    if PAGES[state] then
      room = room - 1
      write_record(about, seen, hosts, host, url, old_state, state, page, '')
    elseif not old_state and call('HLEN', seen) < 2 * max_pages then
      write_record(about, seen, hosts, host, url, old_state, state, page, '')
    elseif not old_state then -- counts without a record: a site can generate URLs without end
      call('HINCRBY', about, 'n:' .. state, 1)
    end
  end
  states[#states + 1] = state
end
expire(life, { about, seen, hosts })
return states
