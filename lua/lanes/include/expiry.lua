-- @include scope

-- Expiry in a job's record: its wait has no deadline, or has the one in `deadlines`. A higher digit
-- means that the job has expired and left its lane, and counts how often it was listed since.
local NO_DEADLINE, HAS_DEADLINE = '0', '1'
