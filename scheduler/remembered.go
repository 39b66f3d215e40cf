package scheduler

import (
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// job names a job in asynq: an ID is unique in its queue only.
type job = throttle.JobID

// remembered is what this process knows of jobs that asynq is about to write back to Redis,
// which it may never do. What is never removed ages: once in a writeBackLife the young become
// the old, and the old are dropped, which needs neither a timer nor a look at each. It is safe
// for concurrent use.
type remembered[V any] struct {
	mu         sync.Mutex
	young, old map[job]V
	turn       time.Time // when the young become the old
}

// writeBackLife is how long a job is remembered at least. asynq stops trying to
// write it back when its lease ends, after 30 s. In an outage none is added, and so
// none is forgotten.
const writeBackLife = time.Minute

// add remembers a job for two lives at most: the process can lose Redis.
func (r *remembered[V]) add(j job, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.After(r.turn) {
		r.old, r.young, r.turn = r.young, map[job]V{}, now.Add(writeBackLife)
	}
	r.young[j] = v
}

// get returns what is known of a job.
func (r *remembered[V]) get(j job) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.young[j]
	if !ok {
		v, ok = r.old[j]
	}
	return v, ok
}

// has reports whether a job of that ID is remembered, in any queue. It looks
// at all of them, and is only asked when asynq is about to archive a job.
func (r *remembered[V]) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, jobs := range []map[job]V{r.young, r.old} {
		for j := range jobs {
			if j.ID == id {
				return true
			}
		}
	}
	return false
}

// remove forgets a job that was written back.
func (r *remembered[V]) remove(j job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, j)
	delete(r.old, j)
}
