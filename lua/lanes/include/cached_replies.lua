-- @include scope

-- The replies of a call are cached for a minute. go-redis sends a call again if the reply gets
-- lost, and the repeat must return the same. The cache holds the call's number and a line for each
-- job: for an allowed job '+' and the time at which its permits exist; for a denied job '-' and the
-- wait; for a job that left its lane without permits the whole reply; else nothing.
local ADMITTED, WAITS = '+', '-'

-- Names a wait. Another wait of the same job has another ticket, or began at another time.
local function wait_id(ticket, since) return WAITS .. ticket .. ' ' .. since end

local function is_same_wait(record, wait)
  local ticket, since = string.match(record or '', '^(%-?%d+)\n(%d+)\n')
  return ticket and wait_id(ticket, since) == wait
end

-- Returns a reply as a line.
local function line_of_reply(result)
  local fields = {}
  for i = 1, #result do fields[i] = int(result[i]) end
  return table.concat(fields, ' ')
end

-- Returns what the cache says about each job of a call: a time for an allowed job, a string for a
--   denied job's wait, a table for a whole reply, or false. Returns {} if the cache is about another
--   call.
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
