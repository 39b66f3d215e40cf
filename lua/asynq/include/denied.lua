-- Reports whether a job with that score in asynq's retry set was denied permits. headgate adds the
-- field `denied` to the job's hash: the score with which the denied job was put back; PROMOTED
-- after its promotion; '' if the job went back for another reason. A job that has failed since the
-- denial has another score.
local PROMOTED = 'promoted'
local function is_denied(score, denied)
  return denied and denied ~= '' and denied ~= PROMOTED and tonumber(score or -1) == tonumber(denied)
end
