-- Counts the denied jobs among some jobs of the retry set.
-- KEYS[1] asynq:{queue}:retry
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] rank of the first job
-- ARGV[3] rank of the last job
-- Returns the number of jobs, and the number of denied ones: see denied.lua
-- @include denied
local retry = KEYS[1]
local prefix, first, last = ARGV[1], ARGV[2], ARGV[3]

local denied = 0
local jobs = redis.call('ZRANGE', retry, first, last, 'WITHSCORES')
for i = 1, #jobs, 2 do
  local field = redis.pcall('HGET', prefix .. jobs[i], 'denied') -- an error if a key is no hash
  if type(field) == 'string' and is_denied(jobs[i + 1], field) then denied = denied + 1 end
end
return { #jobs / 2, denied }
