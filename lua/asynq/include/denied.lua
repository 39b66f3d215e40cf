-- Reports whether a job is in asynq's retry set because it was denied permits. `score` is the job's
-- score in the retry set, and `denied` is a field that headgate adds to the job's hash. The field
-- holds the score with which the denied job was put back; PROMOTED after the job's promotion; '' if
-- the job went back for another reason. A job that has failed since its denial has another score.
local PROMOTED = 'promoted'
local function is_denied(score, denied)
  return denied and denied ~= '' and denied ~= PROMOTED and tonumber(score or -1) == tonumber(denied)
end
