-- Records what became of a URL of a crawl. A URL in a final state (see crawl.lua) keeps that state.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the job's crawl
-- ARGV[3] milliseconds after which Redis deletes the crawl if no script writes to it
-- ARGV[4] URL
-- ARGV[5] host
-- ARGV[6] new state of the URL
-- ARGV[7] number of links of the page that the job did not read
-- ARGV[8] file of a fetched page, '' if the page was not saved
-- Returns 1, or 0 if Redis has no crawl of that name with the start in ARGV[2]
-- @include crawl
local crawl, start, life, url, host, state, unread, file = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)
if call('HGET', about, 'start') ~= start then return 0 end

local old_state, from = read_record(seen, url)
if not old_state or is_final(old_state) then return 1 end
write_record(about, seen, hosts, host, url, old_state, state, from, file)
if unread ~= '0' then call('HINCRBY', about, 'n:unread', unread) end
expire(life, { about, seen, hosts })
return 1
