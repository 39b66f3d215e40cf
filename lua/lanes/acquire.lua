-- Takes the permits of jobs, or has each wait in its lane until it is granted: one job after the
-- other, as if they had asked alone.
-- Safe to repeat: the same call again gets the same replies, and a job that waits keeps its place.
-- A newcomer takes nothing of a contended meter, which gives permits through the lanes' turns only.
-- Touches: admitted (rw), blocked (r), changes (w), contended (rw), deadlines (rw), deleted (r),
--   demand (rw), full (w), granted (rw), jobs (rw), lane (rw), lanes (rw), leader (r), limit (r),
--   m (rw), meters (rw), overrides (r), seq (w), summaries (r), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2] caller: a name of who makes one call at a time
-- ARGV[3] number of its call, which only repeats of this very call share. The n-th job's leases are
--   held by its queue, its ID and <caller>:<number>.<n>, a line each
-- ARGV[4] 1 the first time that this call is sent, more if it is a repeat
-- ARGV[5…] for each group of jobs that differ in nothing else: queue, where they come from and
--   are promoted; tickets of head start: 0 normal, negative earlier, positive later; longest
--   wait in microseconds, from the first denial, or -1 for any; how long permits are reserved for
--   one once it is granted, in microseconds; how long before they exist it may have them, the same;
--   since when it stood before it was last allowed, 0 if it was not, or -1 if it is new in asynq:
--   then what is known of a job of its name is another's; since when its wait lasts if it has not
--   begun after that, or 0; '' or the line in which the name of its lane says a fairness key; how
--   many needs, and how many jobs there are; limit, key and cost of each need, sorted by limit and
--   key; and of each job its ID, and microseconds until it is of no use any more, or -1 for never
-- Returns for each job {outcome, index of the deciding need, now_us, ready_at_us: if allowed from
--   when on its permits exist, which is over where a repeat finds them, left, full_at_us, capacity,
--   time_us, known}, where time_us is the shortest lease or 0 if allowed, and if denied how long to
--   put the job back for; known, if denied, is 0 where nobody can tell when it will run. If
--   allowed, instead of that, whether the limiter is to hear how the call goes, two numbers for
--   each need by which its meter knows what it gave; and of a job that waited since when, how often
--   it was denied, and since when its permits exist or 0. {6, names, now_us} where calendars must
--   be extended
-- @include scope
-- @inner
-- @include group
-- @include needs
-- @include admit
-- @include arrive
local app, caller, number, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local groups, names = read_groups(5)
local quiet, loaded = call('EXISTS', hg('jobs')) == 0, {} -- quiet: nobody waits
local records = quiet and {} or call('HMGET', hg('jobs'), unpack(names))
local told = again ~= '1' and repeated(call('GET', hg('admitted', caller)), number) or {}
local answers, words, any, seen, slow = {}, { number }, false, {}, false

-- Reports whether the record under a job's name is about another wait than this call means. If this
-- is a repeat, the call means the wait that it began or went on with. Else, if this job is new, the
-- record is that of an earlier job, which was deleted while it waited.
local function is_anothers(job, record)
  if job.wait then return not is_about(record, job.wait) end
  return record and job.stood_us < 0
end

-- Returns the reply to a job that was granted and comes in time, to one without others waiting if
--   the permits are there, and to one that cannot have any; else nil.
local function come_in_time(job, record)
  if is_anothers(job, record) then return nil end
  local holder = job.name .. '\n' .. caller .. ':' .. number .. '.' .. job.place
  job.meters, job.refusal = load_needs(job.needs, job.first - 1, app, holder, loaded)
  if job.admitted then return job.refusal or admit(job) end
  if not record then
    if job.refusal then return job.refusal end
    if not quiet then return nil end
    local _, at = binding(job.meters)
    return at <= now_us and admit(job) or nil
  end
  local ending = '\n' .. job.costs .. '\n' .. job.lane
  job.same = string.sub(record, -#ending) == ending
  job.until_us = job.same and until_of(job, slow)
  if job.refusal or not job.until_us or job.until_us <= 0 then return nil end
  local since_us, denials, from_us, at = arrive(job, record)
  return since_us and admit(job, since_us, denials, from_us, at) or nil
end

-- Processes jobs from the first without a reply on, until one gets none.
local function ask(how)
  local n = 0
  for g = 1, #groups do
    local job = groups[g]
    for k = job.first, job.last, 2 do
      n = n + 1
      if not answers[n] then
        next_job(job, k, names[n], n)
        if seen[job.name] then
          leave()
          records[n] = call('HGET', hg('jobs'), job.name)
        end
        if job.stood_us > 0 then stand(job, records[n]) end
        job.admitted, job.wait = type(told[n]) == 'number' and told[n], type(told[n]) == 'string' and told[n]
        answers[n] = type(told[n]) == 'table' and told[n] or how(job, records[n] or nil)
        if not answers[n] then return false end
        local line = job.remembered or answers[n].wait
        seen[job.name], words[n + 1], any = true, line or '', any or line
      end
    end
  end
  return true
end

local function finish()
  leave()
  store_taken(loaded)
  if any then keep_answers(caller, words) end
  return answers
end

-- Most calls end here: what follows is not even loaded then.
if ask(come_in_time) then return finish() end

leave()
-- @inner
-- @include come
-- @include line_up

-- Unknown jobs that follow a newcomer that waits, wait behind it.
local function follow(job)
  local ids = {}
  seen[job.name] = true
  for k = job.at + 2, job.head_start == 0 and job.stood_us <= 0 and job.useful_us < 0 and job.last or 0, 2 do
    local n = job.place + #ids + 1
    if records[n] or told[n] or seen[names[n]] or ARGV[k + 1] ~= '-1' then break end
    ids[#ids + 1], seen[names[n]] = ARGV[k], true
  end
  local lined = #ids > 0 and line_up(job, ids) or ids
  for i = 1, #ids do answers[job.place + i], words[job.place + i + 1] = lined[i], lined[i].wait end
end

ask(function(job, record)
  if is_anothers(job, record) then
    if job.wait then return pass_over(job, app) end
    forget_earlier(job, record)
    record = nil
  end
  local answer = come_in_time(job, record)
  leave()
  if answer then return answer end
  quiet, slow = false, true
  answer = come_or_wait(job, record)
  if answer[1] == DENIED and not record then follow(job) end
  return answer
end)
return finish()
