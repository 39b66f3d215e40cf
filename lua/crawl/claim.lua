-- Lets a job of a crawl take its URL. A seed is a job that no other job of the crawl enqueued. A
-- seed joins the crawl of that name if any URL of it waits, or if the crawl began after the seed
-- was enqueued. Otherwise the crawl starts again and its URLs are forgotten. A crawl also
-- starts again if none of its jobs has taken a URL for a long time: they are lost.
-- Touches: crawl (rw), crawl_hosts (rw), crawl_seen (rw), crawls (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the crawl that the job belongs to; for a seed, when it was enqueued
-- ARGV[3] "seed" for a seed; else empty
-- ARGV[4] digest of the URL
-- ARGV[5] URL
-- ARGV[6] page that linked it; empty for a seed
-- ARGV[7] host
-- ARGV[8] job
-- ARGV[9] "1" if robots.txt is known to allow the URL: then the URL counts for its host
-- ARGV[10] milliseconds after which the crawl is forgotten
-- ARGV[11] milliseconds after which a crawl is over whose jobs take no more URLs
-- ARGV[12] how many URLs a crawl may have; seeds are accepted beyond that
-- ARGV[13] how many on a host
-- Returns the start of the current crawl, and what becomes of the job: "take" the URL,
--   its crawl is "over", an "other" job has the URL, the URL is "done", or the crawl is "full"
-- @include crawl
local crawl, start, kind = ARGV[1], ARGV[2], ARGV[3]
local digest, url, from, host, job, allowed = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9] == '1'
local life, idle, max_urls, max_host_urls = ARGV[10], ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)

local current = call('HGET', about, 'start')
if current ~= start then
  if current and kind == '' then return { current, 'over' } end
  local waiting = tonumber(call('HGET', about, 'n:w') or 0) + tonumber(call('HGET', about, 'n:q') or 0)
  local last = tonumber(call('ZSCORE', hg('crawls'), crawl) or 0)
  if not current or tonumber(start) > tonumber(current) and (waiting == 0 or last < now_us - idle * 1000) then
    call('UNLINK', about, seen, hosts)
    call('HSET', about, 'start', start, 'began', int(now_us))
    current = start
  end
end
call('ZREMRANGEBYSCORE', hg('crawls'), 0, int(now_us - life * 1000))

local was, linked_by, _, owner = read_record(seen, digest)
local result = 'take'
if is_waiting(was) and owner ~= '' and owner ~= job then
  result = 'other'
elseif was and not is_waiting(was) and was ~= 'f' and not may_come(was) then
  result = 'done'
elseif kind == '' and not has_room(was) then
  local reason = nil
  if was ~= 'q' and pages_left(about, max_urls) <= 0 then
    reason = 'b'
  elseif allowed and host_pages_left(hosts, host, max_host_urls) <= 0 then
    reason = 'h'
  end
  if reason then
    leave_out(about, seen, hosts, digest, was, reason, from, url, host, max_urls)
    result = 'full'
  end
end
if result == 'take' then
  local state = 'w'
  if kind == '' and not allowed and not has_room(was) then state = 'q' end
  if was then from = linked_by end
  call('ZADD', hg('crawls'), int(now_us), crawl)
  write_record(seen, digest, state, from, url, job)
  move_page(about, hosts, host, was, state)
end
for _, key in ipairs({ about, seen, hosts }) do call('PEXPIRE', key, life) end
return { current, result }
