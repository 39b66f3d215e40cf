-- Reports whether a job that has that score in asynq's retry set waits there because it was
-- denied. The
-- field `denied` of its hash is ours. It says until when it was put back, or that
-- it was called since; one that failed since has another score.
local CALLED = 'called'
local function is_denied(score, at)
  return at and at ~= '' and at ~= CALLED and tonumber(score or -1) == tonumber(at)
end
