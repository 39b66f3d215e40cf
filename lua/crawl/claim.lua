-- Has a job of a crawl take its URL. A job that somebody enqueued, and no other
-- job of the crawl, joins the run in progress, or begins the next one if it is
-- over or is to begin anew. A run is over when nothing of it waits, or when what
-- waits has no job any more: so it is where none has taken a URL for long.
-- Touches: crawl (rw), crawl_before (w), crawl_hosts (rw), crawl_pages (rw),
--   crawl_seen (rw), crawls (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] crawl
-- ARGV[2] run that the job was enqueued for
-- ARGV[3] "seed" or "anew" for a job that somebody enqueued, else empty
-- ARGV[4] URL
-- ARGV[5] host
-- ARGV[6] how many links further the crawl may go from there
-- ARGV[7] job
-- ARGV[8] milliseconds after which the crawl is forgotten
-- ARGV[9] milliseconds after which a run is over whose jobs take no more URLs
-- ARGV[10] how many URLs a run may find; those that somebody enqueued are above that
-- ARGV[11] how many on a host
-- Returns the run, what becomes of the job ("take" the URL, "old" run, "other"
--   job has it, "done", or "full" for one that is beyond what the run may find), and
--   the largest depth that was asked for
-- @include crawl
local crawl, run, kind, page, host = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local depth, job, life, patience = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9]
local most, most_of_host = tonumber(ARGV[10]), tonumber(ARGV[11])
local about = hg('crawl', crawl)

local current = call('HGET', about, 'run') or ''
if current ~= run then
  if current ~= '' and kind == '' then return { current, 'old', 0 } end
  local seen, hosts = hg('crawl_seen', crawl .. '|' .. current), hg('crawl_hosts', crawl .. '|' .. current)
  local waiting = tonumber(call('HGET', hosts, '|w') or 0)
  local last = tonumber(call('ZSCORE', hg('crawls'), crawl) or 0)
  if run > current and (kind == 'anew' or waiting == 0 or last < now_us - patience * 1000) then
    call('UNLINK', seen, hosts)
    call('HSET', about, 'run', run, 'began', int(now_us))
    -- A page that a run meets moves on from crawl_before to crawl_pages, so what is left
    -- there after so long has been met by none.
    if tonumber(call('HGET', about, 'pages') or 0) < now_us - life * 1000 then
      call('HSET', about, 'pages', int(now_us))
      call('UNLINK', hg('crawl_before', crawl))
      if call('EXISTS', hg('crawl_pages', crawl)) == 1 then
        call('RENAME', hg('crawl_pages', crawl), hg('crawl_before', crawl))
        call('PEXPIRE', hg('crawl_before', crawl), life)
      end
    end
    current = run
  end
end

local seen, hosts = hg('crawl_seen', crawl .. '|' .. current), hg('crawl_hosts', crawl .. '|' .. current)
call('ZREMRANGEBYSCORE', hg('crawls'), 0, int(now_us - life * 1000))
call('PEXPIRE', about, life)

local state, known, owner = read_page(seen, page)
depth = math.max(depth, known)
if state == 'w' and owner ~= '' and owner ~= job then return { current, 'other', depth } end
if state and state ~= 'w' and state ~= 'f' then return { current, 'done', known } end
if not state and kind == '' and (pages_left(hosts, '', most) <= 0 or pages_left(hosts, host, most_of_host) <= 0) then
  return { current, 'full', depth }
end
call('ZADD', hg('crawls'), int(now_us), crawl)
write_page(seen, page, 'w', depth, job)
move_page(hosts, host, state, 'w')
call('PEXPIRE', seen, life)
call('PEXPIRE', hosts, life)
return { current, 'take', depth }
