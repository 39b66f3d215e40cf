-- Notes what has become of a URL of a crawl.
-- Touches: crawl (r), crawl_before (rw), crawl_hosts (w), crawl_pages (w),
--   crawl_seen (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] run
-- ARGV[3] milliseconds after which the crawl is forgotten
-- ARGV[4] URL
-- ARGV[5] host
-- ARGV[6] state
-- ARGV[7] depth to which its links have been followed
-- ARGV[8] what to keep of the page beyond the run; empty for nothing new
-- Returns that depth, or a larger one that was asked for meanwhile: then nothing
--   is noted; -1 if the run is over
-- @include crawl
local crawl, run, life, page, host = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local state, depth, kept = ARGV[6], tonumber(ARGV[7]), ARGV[8]
if call('HGET', hg('crawl', crawl), 'run') ~= run then return -1 end
local seen, hosts = hg('crawl_seen', crawl .. '|' .. run), hg('crawl_hosts', crawl .. '|' .. run)
local pages, before = hg('crawl_pages', crawl), hg('crawl_before', crawl)

local was, known = read_page(seen, page)
if known > depth and state ~= 'f' then return known end
if was ~= nil and was ~= 'w' and was ~= 'f' then return depth end
write_page(seen, page, state, math.max(depth, known), '')
move_page(hosts, host, was, state)
if kept == '' then kept = call('HGET', before, page) end
if kept then
  call('HSET', pages, page, kept)
  call('HDEL', before, page)
  call('PEXPIRE', pages, life)
end
return depth
