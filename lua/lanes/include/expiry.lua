-- @include scope

-- Values of the expiry field of a job's record: its wait has no deadline, or one that is in
-- `deadlines`. '2' to '6' mean that the job has expired and left its lane. They count how often
-- expire_waits.lua has returned it.
local NO_DEADLINE, HAS_DEADLINE = '0', '1'
