-- Binds the scope to one asynq Redis, or renews the binding. An asynq Redis may renew the binding
-- if it has the bound data ID now, or had this ID before it lost its data.
-- If the scope's data have an older version and no process leads, the waiting and granted jobs are
-- deleted from the scope. The reconciler sends these jobs back to their queues. The state of the
-- meters stays, and the summaries of limits are written again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] data ID of the asynq Redis
-- ARGV[2] data ID that this asynq Redis had before it lost its data, '' if unknown
-- ARGV[3] duration of the binding, milliseconds
-- ARGV[4] data version of this process
-- Returns a list of
--   data     data ID of the other asynq Redis to which the scope is bound; '' if there is no other
--   version  version of the scope's data if this process cannot use them, else 0
-- @include summary
local data, before, life_ms, version = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- headgate writes no binding and no lease without an end.
local owner = call('PTTL', hg('asynq')) >= 0 and call('GET', hg('asynq'))
if owner and owner ~= data and owner ~= before then return { owner, 0 } end

local epoch = call('GET', hg('epoch'))
local stored_version = epoch and (tonumber(string.match(epoch, '^(%d+) ') or nil) or 1) or version
if stored_version ~= version then
  if stored_version > version or call('PTTL', hg('leader')) >= 0 then return { '', stored_version } end
  local lanes, dropped = call('ZRANGE', hg('lanes'), 0, -1), {}
  local records = call('HVALS', hg('jobs')) -- records also name lanes that the key `lanes` lacks
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
call('SET', hg('asynq'), data, 'PX', life_ms)
return { '', 0 }
