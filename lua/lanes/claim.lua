-- Claims a scope for one asynq Redis, whose jobs then wait here, or renews the claim. That Redis is
-- the same if its data are, as after a failover; or its address is, as after its data were lost; or
-- its data were the claim's before. What an older version has left of waiting jobs is dropped, once
-- no process leads any more: they are sent back to ask. Meters stay, and limits are summed up anew.
-- Workers from before there were versions take this claim for another Redis's, and do not start.
-- Touches: asynq (rw), contended (w), deadlines (w), demand (w), epoch (rw), full (w), granted (w),
--   jobs (rw), lane (w), lanes (rw), leader (r), limit (r), limits (r), meters (w), summaries (w),
--   tickets (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] name of the asynq Redis's data
-- ARGV[2] name of those that it had before, as this process knows, or ''
-- ARGV[3] its address
-- ARGV[4] how long the claim holds, in milliseconds
-- ARGV[5] version of the scope's data that this process keeps
-- Returns {the address of another asynq Redis that has the scope or '', the other version of its
--   data where they cannot be brought over or 0}
-- @include summary
local data, before, address, life_ms, version = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local SUFFIX = ' (its workers keep data of another version)'

local claim = call('GET', hg('asynq'))
if claim then
  local owner_data, owner_address = string.match(claim, '^([^\n ]*)[^\n]*\n(.*)$')
  if owner_address and string.sub(owner_address, -#SUFFIX) == SUFFIX then owner_address = string.sub(owner_address, 1, -#SUFFIX - 1) end
  if owner_data ~= data and owner_data ~= before and owner_address ~= address then return { owner_address or claim, 0 } end
end

local epoch = call('GET', hg('epoch'))
local stored_version = epoch and (tonumber(string.match(epoch, '^(%d+) ') or nil) or 1) or version
if stored_version ~= version then
  if stored_version > version or call('EXISTS', hg('leader')) == 1 then return { '', stored_version } end
  local lanes, dropped = call('ZRANGE', hg('lanes'), 0, -1), {}
  local records = call('HVALS', hg('jobs')) -- a lane that a hand has taken off the list is in those of its jobs
  for i = 1, #records do lanes[#lanes + 1] = string.match(records[i], '^' .. string.rep('[^\n]*\n', 5) .. '(.+)$') end
  for i = 1, #lanes do
    if not dropped[lanes[i]] then call('DEL', hg('lane', lanes[i]), hg('granted', lanes[i])) end
    dropped[lanes[i]] = true
  end
  call('DEL', hg('jobs'), hg('lanes'), hg('tickets'), hg('full'), hg('contended'))
  call('DEL', hg('meters'), hg('demand'), hg('deadlines'), hg('epoch'))
  local limits = call('SMEMBERS', hg('limits'))
  for i = 1, #limits do store_summary(limits[i]) end
end
call('SET', hg('asynq'), data .. ' ' .. int(version) .. '\n' .. address .. SUFFIX, 'PX', life_ms)
return { '', 0 }
