-- @include scope

-- The replies of a call are cached for a minute. If a reply is lost, go-redis sends the call again,
-- and the repeat must return the same. The cache holds the number of the call and a line for each
-- job: '+' and the time from which its permits exist, if it was allowed; '-' and its wait, if it
-- waits; the complete reply, if it left its lane without permits; else nothing.
local ADMITTED, WAITS = '+', '-'

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

-- Returns the cached lines of a call: a number (time) for an allowed job, a string (wait ID) for a
-- waiting job, a table for a complete reply, or false. Returns {} if another call is cached.
local function cached_replies(cache, call_number)
  local cached = {}
  if not cache or string.match(cache, '^%d+') ~= call_number then return cached end
  for line in string.gmatch(cache, '\n([^\n]*)') do
    local result = line ~= '' and line
    if string.sub(line, 1, 1) == ADMITTED then
      result = tonumber(string.sub(line, 2)) or 0
    elseif result and string.sub(line, 1, 1) ~= WAITS then
      result = {}
      for field in string.gmatch(line, '%S+') do result[#result + 1] = tonumber(field) end
    end
    cached[#cached + 1] = result
  end
  return cached
end

local function cache_replies(caller, lines) call('SET', hg('admitted', caller), table.concat(lines, '\n'), 'PX', int(GRACE_MS)) end
