-- @include scope

-- The states of URLs that have or had a job. Only URLs in these states count for max_pages and
-- max_host_pages. Any other state names the reason for which no job has fetched the URL. A later
-- job can still take a URL in such a state, but never a disallowed URL.
local PAGES = { waiting = true, fetched = true, redirected = true, missing = true, failed = true }

-- Reports whether no further job may take a URL in this state.
local function is_final(state) return state == 'disallowed' or PAGES[state] and state ~= 'waiting' and state ~= 'failed' end

-- Returns the record of a URL in crawl_seen: the URL's state, the page that linked the URL or ''
-- for a seed, and the job that took the URL or '' for none. A fetched URL has the file of its page
-- instead of a job. Returns nil for a URL without a record.
local function read_record(seen, url)
  return string.match(call('HGET', seen, url) or '', '^([^\n]+)\n([^\n]*)\n(.*)$')
end

-- Writes the record of a URL, and counts the URL in its new state instead of in old_state. A nil
-- old_state means that the URL had no record.
local function write_record(about, seen, hosts, host, url, old_state, state, from, job_or_file)
  call('HSET', seen, url, state .. '\n' .. from .. '\n' .. job_or_file)
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
