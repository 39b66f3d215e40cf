-- @include scope

-- The states of URLs that have or had a job. Only these URLs count for max_pages and
-- max_host_pages. In any other state the URL is not fetched, for the reason that the state names.
-- A later job may still take such a URL, except in the state disallowed.
local PAGES = { waiting = true, fetched = true, redirected = true, missing = true, failed = true }

-- Reports whether no further job may take a URL in this state.
local function is_final(state) return state == 'disallowed' or PAGES[state] and state ~= 'waiting' and state ~= 'failed' end

-- Returns a record of crawl_seen: the URL's state, the page that linked the URL, and the job that
-- owns the URL. Returns nil if the URL is unknown.
local function read_record(seen, url)
  return string.match(call('HGET', seen, url) or '', '^([^\n]+)\n([^\n]*)\n(.*)$')
end

-- Writes a record, and moves the URL from the count of one state to that of another.
local function write_record(about, seen, hosts, host, url, old_state, state, from, job)
  call('HSET', seen, url, state .. '\n' .. from .. '\n' .. job)
  if old_state == state then return end
  if old_state then call('HINCRBY', about, 'n:' .. old_state, -1) end
  call('HINCRBY', about, 'n:' .. state, 1)
  if PAGES[state] and not PAGES[old_state] then
    call('HINCRBY', hosts, host, 1)
  elseif PAGES[old_state] and not PAGES[state] and call('HINCRBY', hosts, host, -1) <= 0 then
    call('HDEL', hosts, host)
  end
end

local function expire(life, keys)
  for _, key in ipairs(keys) do call('PEXPIRE', key, life) end
end
