package scheduler

import (
	"time"

	"github.com/headgate/headgate/throttle"
)

// judgeForecasts sees that a job which was denied was told when it would run, where that
// hangs on nothing but the jobs before it in its lane: nobody else needs its meter, and
// nothing happened meanwhile. Jobs that cost differently may leave up to half of each window
// over, as the next one does not fit in, or fill it: so it may take twice as long, or half.
func (w *sim) judgeForecasts() {
	if w.has(settles) || w.has(answers) || w.has(patience) || w.has(fairness) {
		return
	}
	for _, l := range w.lanes {
		if !l.even || !l.ruled.IsZero() || len(l.parsed) > 1 || len(w.near(l)) > 1 || len(w.direct) > 0 || w.defined(l.parsed[0].Limit).Kind == throttle.Concurrency {
			continue
		}
		limit := w.defined(l.parsed[0].Limit)
		mixed := w.has(costs) && limit.Kind != throttle.Funnel && limit.Kind != throttle.TokenBucket
		for id, job := range w.jobs {
			if job.ran.IsZero() { // it was taken away
				continue
			}
			ran := job.ran.Sub(w.began).Microseconds()
			late := microseconds(ran - job.told)
			waited := microseconds(ran - job.came)
			most, least := waited/5, -waited/5
			if mixed {
				most, least = waited/2, -waited
			}
			if job.lane == l && job.denials > 0 && !job.crowded && w.undisturbedFrom(w.began.Add(microseconds(job.came)), job.ran) && (late > time.Second+most || late < -time.Second+least) {
				w.breaksFor(id, "it was told that it would run %s sooner than it did after %s", late, waited)
			}
		}
	}
}
