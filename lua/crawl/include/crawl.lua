-- @include scope

-- A record of crawl_seen is a URL's state (one letter), the URL, the page that linked it and the
-- job that owns the URL, each on a line.
local function read_record(seen, digest)
  local text = call('HGET', seen, digest)
  if not text then return nil, '', '', '' end
  local state, url, from, job = string.match(text, '^(.)([^\n]*)\n([^\n]*)\n(.*)$')
  return state, from, url, job
end

local function write_record(seen, digest, state, from, url, job)
  call('HSET', seen, digest, state .. url .. '\n' .. from .. '\n' .. job)
end

-- The states of URLs that have or had a job, that wait, and that count for max_host_pages. A
-- URL whose robots.txt is not known yet ("q") does not count for its host.
local function is_page(state) return state and string.find('qwdrmf', state, 1, true) ~= nil end
local function is_waiting(state) return state == 'q' or state == 'w' end
local function has_room(state) return is_page(state) and state ~= 'q' end

-- A URL that was left out may be found again when there is room, or over fewer links.
local function may_come(state) return not state or not is_page(state) and state ~= 'x' end

-- How many more URLs a crawl may have.
local function pages_left(about, max_urls)
  local left = max_urls
  for _, n in ipairs(call('HMGET', about, 'n:q', 'n:w', 'n:d', 'n:r', 'n:m', 'n:f')) do left = left - tonumber(n or 0) end
  return left
end

local function host_pages_left(hosts, host, max_host_urls)
  return max_host_urls - tonumber(call('HGET', hosts, host) or 0)
end

-- Counts a URL among those of another state.
local function move_page(about, hosts, host, from, to)
  if from == to then return end
  if from then call('HINCRBY', about, 'n:' .. from, -1) end
  call('HINCRBY', about, 'n:' .. to, 1)
  if has_room(to) and not has_room(from) then
    call('HINCRBY', hosts, host, 1)
  elseif has_room(from) and not has_room(to) and call('HINCRBY', hosts, host, -1) <= 0 then
    call('HDEL', hosts, host)
  end
end

-- Counts a URL that is left out, and remembers it if it is new. A site can generate URLs
-- without end, so the crawl remembers only as many as it may have pages. After that a URL
-- counts each time it is found.
local function leave_out(about, seen, hosts, digest, was, state, from, url, host, max_urls)
  if was == 'q' or not was and call('HLEN', seen) < 2 * max_urls then
    write_record(seen, digest, state, from, url, '')
  elseif was then
    return
  end
  move_page(about, hosts, host, was, state)
end
