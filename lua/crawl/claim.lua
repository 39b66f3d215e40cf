-- Lets a job of a crawl take its URL. A seed is a job that no other job of the crawl enqueued. A
-- seed joins the current crawl if a URL of the crawl waits, or if the seed was not enqueued later
-- than the seed that started the crawl. Otherwise the seed starts the crawl again, and the crawl's URLs are forgotten.
-- If Redis has forgotten the crawl, any of its jobs starts it again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the job's crawl; for a seed, the time at which the seed was enqueued
-- ARGV[3] URL
-- ARGV[4] page that linked the URL; '' for a seed
-- ARGV[5] host
-- ARGV[6] job, the queue and ID of the job that calls
-- ARGV[7] milliseconds after which the crawl is forgotten
-- Returns the start of the current crawl, and a result:
--   take   the job takes the URL
--   over   a newer crawl of that name has started
--   other  another job has the URL
--   done   the URL is finished
-- @include crawl
local crawl, start, url, from, host, job, life = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local about, seen, hosts = hg('crawl', crawl), hg('crawl_seen', crawl), hg('crawl_hosts', crawl)

local current = call('HGET', about, 'start')
if current ~= start then
  if current and from ~= '' then return { current, 'over' } end
  local waiting = tonumber(call('HGET', about, 'n:waiting') or 0)
  if not current or tonumber(start) > tonumber(current) and waiting == 0 then
    call('UNLINK', about, seen, hosts)
    call('HSET', about, 'start', start, 'began', int(now_us))
    current = start
  end
end
call('ZREMRANGEBYSCORE', hg('crawls'), 0, int(now_us - life * 1000))

local old_state, linked_by, owner = read_record(seen, url)
local result = 'take'
if old_state == 'waiting' and owner ~= '' and owner ~= job then
  result = 'other'
elseif is_final(old_state) then
  result = 'done'
else
  call('ZADD', hg('crawls'), int(now_us), crawl)
  write_record(about, seen, hosts, host, url, old_state, 'waiting', linked_by or from, job)
end
expire(life, { about, seen, hosts })
return { current, result }
