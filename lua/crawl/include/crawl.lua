-- @include scope

-- The states of URLs that have or had a job. They count for the bounds of the crawl. The states of URLs
-- that are left out are the reasons.
local PAGES = { waiting = true, fetched = true, redirected = true, missing = true, failed = true }

-- Reports whether no further job may take a URL in this state.
local function is_final(state) return state == 'disallowed' or PAGES[state] and state ~= 'waiting' and state ~= 'failed' end

-- A record of crawl_seen has three lines: the URL's state, the page that linked the URL, and the job that
-- owns the URL. Returns nil if the URL is unknown.
local function read_record(seen, url)
  return string.match(call('HGET', seen, url) or '', '^([^\n]+)\n([^\n]*)\n(.*)$')
end

-- Writes a record, and moves the URL from the count of one state to that of another.
local function write_record(about, seen, hosts, host, url, was, state, from, job)
  call('HSET', seen, url, state .. '\n' .. from .. '\n' .. job)
  if was == state then return end
  if was then call('HINCRBY', about, 'n:' .. was, -1) end
  call('HINCRBY', about, 'n:' .. state, 1)
  if PAGES[state] and not PAGES[was] then
    call('HINCRBY', hosts, host, 1)
  elseif PAGES[was] and not PAGES[state] and call('HINCRBY', hosts, host, -1) <= 0 then
    call('HDEL', hosts, host)
  end
end

local function expire(life, keys)
  for _, key in ipairs(keys) do call('PEXPIRE', key, life) end
end
