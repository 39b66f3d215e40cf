-- @include scope

-- What a run of a crawl has found: a URL's state, how deep its links may be
-- followed, and the job that it belongs to while it waits.
local function read_page(seen, page)
  local text = call('HGET', seen, page)
  if not text then return nil, -1, '' end
  local state, depth, owner = string.match(text, '^(%a)(%d+)|(.*)$')
  return state, tonumber(depth), owner
end

local function write_page(seen, page, state, depth, owner)
  call('HSET', seen, page, state .. int(depth) .. '|' .. owner)
end

-- How many more URLs a run may find, on a host and in all.
local function pages_left(hosts, host, most)
  local fields = {}
  for state in string.gmatch('wdurmxf', '%a') do fields[#fields + 1] = host .. '|' .. state end
  local left = most
  for _, n in ipairs(call('HMGET', hosts, unpack(fields))) do left = left - (tonumber(n or 0)) end
  return left
end

-- Counts a URL among those of another state, for its host and for all.
local function move_page(hosts, host, from, to)
  if from == to then return end
  for _, of in ipairs({ '', host }) do
    if from then call('HINCRBY', hosts, of .. '|' .. from, -1) end
    call('HINCRBY', hosts, of .. '|' .. to, 1)
  end
end
