-- Lets a job of a crawl take its URL. A seed is a job that no other job of the crawl enqueued. A
-- seed joins the current crawl if a URL of the crawl waits, or if the crawl started after the seed
-- was enqueued. Otherwise the seed starts the crawl again, and the crawl's URLs are forgotten. A
-- seed also starts the crawl again if no job has taken a URL for a long time: its jobs are lost.
-- Touches: crawl (rw), crawl_hosts (rw), crawl_seen (rw), crawls (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the job's crawl; for a seed, the time at which the seed was enqueued
-- ARGV[3] "seed" for a seed; else empty
-- ARGV[4] digest of the URL
-- ARGV[5] URL
-- ARGV[6] page that linked the URL; empty for a seed
-- ARGV[7] host
-- ARGV[8] job
-- ARGV[9] "1" if robots.txt is known to allow the URL; such a URL counts for its host
-- ARGV[10] milliseconds after which the crawl is forgotten
-- ARGV[11] milliseconds without a claim after which the jobs of the crawl count as lost
-- ARGV[12] maximum number of URLs of a crawl; seeds are accepted beyond the maximum
-- ARGV[13] maximum number of URLs of a host
-- Returns the start of the current crawl, and a result:
--   "take" the job takes the URL
--   "over" the job's crawl is over
--   "other" another job has the URL
--   "done" the URL is finished
--   "full" the crawl has reached a maximum
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
elseif was and not is_waiting(was) and was ~= 'f' and not may_get_job(was) then
  result = 'done'
elseif kind == '' and not takes_room(was) then
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
  if kind == '' and not allowed and not takes_room(was) then state = 'q' end
  if was then from = linked_by end
  call('ZADD', hg('crawls'), int(now_us), crawl)
  write_record(seen, digest, state, from, url, job)
  move_page(about, hosts, host, was, state)
end
for _, key in ipairs({ about, seen, hosts }) do call('PEXPIRE', key, life) end
return { current, result }
