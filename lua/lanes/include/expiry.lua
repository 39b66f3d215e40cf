-- @include scope

-- Values of the expiry field of a job's record: the job has no wait deadline, or it has a deadline,
-- which is in the sorted set `deadlines`. The values '2' to '6' mean that the job has expired and
-- left its lane. The values '7' to '9' mean that Redis lost the deadline, and that the job has left
-- its lane to ask again. expire_waits.lua raises the value by 1 each time that it returns the job,
-- up to 6 or 9.
local NO_DEADLINE, HAS_DEADLINE, LOST_DEADLINE = '0', '1', '7'
