-- Reports whether a job with that score in asynq's retry set waits there because it was denied.
-- at is the field `denied` of its hash, which is ours: the score with which the job was put back,
-- or CALLED after the job was granted its permits. A job that has failed since has another score.
local CALLED = 'called'
local function is_denied(score, at)
  return at and at ~= '' and at ~= CALLED and tonumber(score or -1) == tonumber(at)
end
