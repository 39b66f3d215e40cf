-- @include scope

-- The replies of a caller's last call are cached. If a reply is lost, go-redis sends the call again,
-- and the repeat must return the same replies. The cache holds the number of the call, and a line
-- for each job. The line of an allowed job is '+' and the time from which its
-- permits are available. The line of a waiting job is its wait ID, which begins with '-'. The line
-- of a job that left its lane without permits is the complete reply. The line of any other job is
-- empty.
local ADMITTED, WAITS = '+', '-'

-- The reply to a call that arrives after a later call of its caller.
local OVERTAKEN = 'OVERTAKEN a later call of the same caller came first'

-- Returns the ID of a wait. No two waits of a job have the same ticket and the same start.
local function wait_id(ticket, since) return WAITS .. ticket .. ' ' .. since end

local function is_same_wait(record, wait)
  local ticket, since = string.match(record or '', '^(%-?%d+)\n(%d+)\n')
  return ticket and wait_id(ticket, since) == wait
end

local function line_of_reply(result)
  local fields = {}
  for i = 1, #result do fields[i] = int(result[i]) end
  return table.concat(fields, ' ')
end

-- Reports whether a call arrives after a later call of its caller: `cache` is of the later call. The
-- call's first sending was delayed, and its caller has got the reply to a repeat, or has given up.
-- No caller reads the reply.
local function is_overtaken(cache, call_number)
  local last = cache and tonumber(string.match(cache, '^%d+') or nil)
  return last and last > tonumber(call_number)
end

-- Parses the cached lines of a call. Returns for each job a number (Unix microseconds) if the job
-- was allowed, a string (wait ID) if it waits, a table if the line is a complete reply, and false
-- if the line is empty. The second result is the lines. Both are {} if the cache is missing or holds
-- another call.
local function cached_replies(cache, call_number)
  local cached, lines = {}, {}
  if not cache or string.match(cache, '^%d+') ~= call_number then return cached, lines end
  for line in string.gmatch(cache, '\n([^\n]*)') do
    local result = line ~= '' and line
    if string.sub(line, 1, 1) == ADMITTED then
      result = tonumber(string.sub(line, 2)) or 0
    elseif result and string.sub(line, 1, 1) ~= WAITS then
      result = {}
      for field in string.gmatch(line, '%S+') do result[#result + 1] = tonumber(field) end
    end
    cached[#cached + 1], lines[#lines + 1] = result, line
  end
  return cached, lines
end

local function cache_replies(caller, lines) call('SET', hg('admitted', caller), table.concat(lines, '\n'), 'PX', int(CALL_MS)) end
