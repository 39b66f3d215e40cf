-- @include scope

-- A call's replies are kept for a minute, so that a repeat, which go-redis sends if they get lost,
-- gets the same: the call's number, and a line for each job. The line says from when on the permits
-- of an allowed job exist; the reply to a job that left its lane without permits; or which wait the
-- call means of a denied job. It is empty if nothing is to be kept.
local ADMITTED, WAITS = '+', '-'

-- Names the wait that a record is about: another wait has another ticket, or began at another
-- moment.
local function wait_of(ticket, since) return WAITS .. ticket .. ' ' .. since end

local function is_about(record, wait)
  local ticket, since = string.match(record or '', '^(%-?%d+)\n(%d+)\n')
  return ticket and wait_of(ticket, since) == wait
end

-- A reply as a line.
local function line_of_reply(answer)
  local words = {}
  for i = 1, #answer do words[i] = int(answer[i]) end
  return table.concat(words, ' ')
end

-- Returns what this very call replied before, if that is known: a time for an allowed job, the
--   reply for one that left its lane, the wait of a denied one, or false.
local function repeated(last, number)
  local told = {}
  if not last or string.match(last, '^%d+') ~= number then return told end
  for line in string.gmatch(last, '\n([^\n]*)') do
    local answer = line ~= '' and line
    if string.sub(line, 1, 1) == ADMITTED then
      answer = tonumber(string.sub(line, 2)) or 0
    elseif answer and string.sub(line, 1, 1) ~= WAITS then
      answer = {}
      for word in string.gmatch(line, '%S+') do answer[#answer + 1] = tonumber(word) end
    end
    told[#told + 1] = answer
  end
  return told
end

local function keep_answers(caller, lines) call('SET', hg('admitted', caller), table.concat(lines, '\n'), 'PX', int(GRACE)) end
