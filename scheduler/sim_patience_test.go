package scheduler

import (
	"time"

	"github.com/headgate/headgate/internal/waitdb"
)

// tellsLate is how much later than its patience ends a job may be told so.
const tellsLate = time.Second

// end is when a job's patience ends, by the limiter's clock; the zero Time where it
// never does. Of a deadline the limiter hears a second less.
func (j *simJob) end() time.Time { return j.patience(j.until.Add(-time.Second)) }

// over is from when on a job is not let by. One that never waited is not held to that
// second.
func (j *simJob) over() time.Time { return j.patience(j.until) }

func (j *simJob) patience(until time.Time) (end time.Time) {
	if j.maxWait > 0 && !j.since.IsZero() {
		end = j.since.Add(j.maxWait)
	}
	if !j.until.IsZero() && (end.IsZero() || until.Before(end)) {
		end = until
	}
	return end
}

// hurries reports whether there is a moment from which on the job is of no use.
func (j *simJob) hurries() bool { return j.maxWait > 0 || !j.until.IsZero() }

// oneClock reports whether the limiter's clock is the processes', and keeps what it
// was told: only then is a job's patience judged.
func (w *sim) oneClock() bool {
	for _, e := range w.events {
		if e.lost || e.kind == "clocks stepped" || e.kind == "records changed" {
			return false
		}
	}
	return true
}

// judgePatience sees that nobody is let by whose patience is over. Where a job may have
// been let by and nobody heard of it, nobody knows since when it waits.
func (w *sim) judgePatience(id string, job *simJob, d waitdb.Decision) {
	if end := job.over(); !end.IsZero() && d.At.Add(d.BeginIn).After(end) && w.oneClock() && !w.unheard() {
		w.breaksFor(id, "it was admitted %s after its patience had ended", d.At.Add(d.BeginIn).Sub(end))
	}
}

// tooLate notes that a job is told that it is too late, and sees that it is once its patience
// has ended, and not before: nobody is told so for an estimate.
func (w *sim) tooLate(id string, job *simJob, d waitdb.Decision) {
	end := job.end()
	switch job.ended = time.Now(); {
	case !job.hurries():
		w.breaksFor(id, "it has all the time: %s", d)
	case job.ended.Sub(end) > tellsLate && !job.since.IsZero() && len(w.events) == 0 && !w.allBusy() && w.busy.Before(end):
		w.breaksFor(id, "it was told so %s after its patience had ended", job.ended.Sub(end))
	case (end.IsZero() || end.Sub(job.ended) > time.Millisecond) && !w.has(answers) && !w.unheard() && w.oneClock():
		w.breaksFor(id, "it was told so %s before its patience had ended", end.Sub(job.ended))
	}
	job.waits = ""
	w.leaves(id)
}
