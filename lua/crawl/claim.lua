-- Lets a job of a crawl take its URL. A seed is a job that no other job of the crawl enqueued. A
-- seed starts the crawl again if no URL of the crawl waits and the seed was enqueued later than the
-- seed that started the crawl. The script then deletes the old URLs. Any other seed joins the
-- current crawl. If Redis no longer has the crawl, any job of the crawl starts the crawl again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] start of the job's crawl; for a seed, the time at which the seed was enqueued
-- ARGV[3] URL
-- ARGV[4] page that linked the URL; '' for a seed
-- ARGV[5] host
-- ARGV[6] job, the queue and ID of the job that calls
-- ARGV[7] milliseconds after which Redis deletes the crawl if no script writes to it
-- Returns the start of the current crawl, and a result:
--   take   this job now has the URL, and must fetch it
--   over   another crawl of that name has started
--   other  another job has taken the URL and has not finished it
--   done   the URL is in a final state (see crawl.lua)
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
