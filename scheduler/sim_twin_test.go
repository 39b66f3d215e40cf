package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// surely is how much sooner a job must run in its twin world than its patience ends here
// for the promise to be broken: order at one moment is left to chance.
const surely = 500 * time.Millisecond

// judgeTwin sees that a job which was told that it is too late before its patience had
// ended would have been too late indeed: in a world that differs in nothing but that the
// job has all the time, it runs after that. The two are the same up to the moment at
// which it was told; where something happens later that nobody could know of, as that
// a limit is changed, nothing is judged.
func (w *sim) judgeTwin(t *testing.T) (worlds int) {
	i := slices.IndexFunc(w.early, func(id string) bool { return w.undisturbed(w.jobs[id]) })
	if i < 0 {
		return 0
	}
	id := w.early[i]
	objection := ""
	for range 3 { // what is left to chance would have to fall so each time
		worlds++
		twin := w.twin(t, id)
		if objection = w.objects(twin, id); objection == "" {
			return worlds
		}
	}
	w.breaksFor(id, "in its twin world it would not be: %s", objection)
	return worlds
}

// undisturbed reports whether nothing happened from when a job was told until its
// patience would have ended that could let it run sooner.
func (w *sim) undisturbed(job *simJob) bool {
	return !slices.ContainsFunc(w.events, func(e simEvent) bool {
		return e.loosens && !e.at.After(job.end()) && !e.at.Before(job.ended)
	})
}

// twin plays the same world, in which one job has all the time.
func (w *sim) twin(t *testing.T, patient string) (twin *sim) {
	synctest.Test(t, func(t *testing.T) {
		twin = newSim(t, w.seed, patient)
		twin.play()
		twin.shutdown()
	})
	return twin
}

// objects says what is wrong where the job of a twin world runs before its patience
// ends in this one, or returns "".
func (w *sim) objects(twin *sim, id string) string {
	job, other := w.jobs[id], twin.jobs[id]
	if other.ran.IsZero() {
		return ""
	}
	told, end, ran := job.ended.Sub(w.began), job.end().Sub(w.began), other.ran.Sub(twin.began)
	if end-ran < surely || ran < told { // before that they are the same but for what is left to chance
		return ""
	}
	return fmt.Sprintf("it was told after %s that it is too late; its patience ends after %s, and where it has all the time it runs after %s", told, end, ran)
}
