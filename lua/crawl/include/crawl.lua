-- @include scope

-- A record of crawl_seen has three lines: the URL's state (one letter) and the URL, the page that
-- linked the URL, and the job that owns the URL.
local function read_record(seen, digest)
  local text = call('HGET', seen, digest)
  if not text then return nil, '', '', '' end
  local state, url, from, job = string.match(text, '^(.)([^\n]*)\n([^\n]*)\n(.*)$')
  return state, from, url, job
end

local function write_record(seen, digest, state, from, url, job)
  call('HSET', seen, digest, state .. url .. '\n' .. from .. '\n' .. job)
end

-- Reports whether a URL in this state has or had a job.
local function is_page(state) return state and string.find('qwdrmf', state, 1, true) ~= nil end

-- Reports whether a URL in this state waits for its job.
local function is_waiting(state) return state == 'q' or state == 'w' end

-- Reports whether a URL in this state counts for max_host_pages. In state "q" its robots.txt is not
-- known.
local function takes_room(state) return is_page(state) and state ~= 'q' end

-- Reports whether a URL in this state may get a job. A URL that was left out may be found again with
-- more room or a lower depth.
local function may_get_job(state) return not state or not is_page(state) and state ~= 'x' end

-- Returns the number of further URLs that a crawl may have.
local function pages_left(about, max_urls)
  local left = max_urls
  for _, n in ipairs(call('HMGET', about, 'n:q', 'n:w', 'n:d', 'n:r', 'n:m', 'n:f')) do left = left - tonumber(n or 0) end
  return left
end

local function host_pages_left(hosts, host, max_host_urls)
  return max_host_urls - tonumber(call('HGET', hosts, host) or 0)
end

-- Moves a URL from the count of one state to that of another.
local function move_page(about, hosts, host, from, to)
  if from == to then return end
  if from then call('HINCRBY', about, 'n:' .. from, -1) end
  call('HINCRBY', about, 'n:' .. to, 1)
  if takes_room(to) and not takes_room(from) then
    call('HINCRBY', hosts, host, 1)
  elseif takes_room(from) and not takes_room(to) and call('HINCRBY', hosts, host, -1) <= 0 then
    call('HDEL', hosts, host)
  end
end

-- Counts a URL that is left out, and records it if it is new. A site can generate URLs without end,
-- so the crawl records only as many such URLs as it may have pages. Any other URL is counted each
-- time it is found.
local function leave_out(about, seen, hosts, digest, was, state, from, url, host, max_urls)
  if was == 'q' or not was and call('HLEN', seen) < 2 * max_urls then
    write_record(seen, digest, state, from, url, '')
  elseif was then
    return
  end
  move_page(about, hosts, host, was, state)
end
