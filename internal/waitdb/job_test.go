package waitdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// grant is for how long permits are reserved for a granted job.
const grant = waitdb.DefaultGrant

func one(limit string) throttle.Need { return throttle.Need{Limit: limit, Key: "k", Cost: 1} }

func perMinute(name string, n int) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.PerMinute(n)}
}

// job is one of the default queue, which may have its permits early.
func job(id string) waitdb.Job {
	return waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, MaxAdvance: 2 * waitdb.Advance}
}

// inQueue is what jobs of a queue have in common.
func inQueue(queue string) waitdb.Job { return waitdb.Job{JobID: throttle.JobID{Queue: queue}} }

// acquire asks for a job of that ID.
func (s *fixture) acquire(t redistest.TB, id string, needs ...throttle.Need) waitdb.Decision {
	t.Helper()
	return s.acquireJob(t, job(id), needs...)
}

func (s *fixture) acquireJob(t redistest.TB, job waitdb.Job, needs ...throttle.Need) waitdb.Decision {
	t.Helper()
	d, err := s.lanes.Acquire(background, job, needs...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// wantTaken has granted jobs ask again, each of which must be allowed.
func (s *fixture) wantTaken(t *testing.T, jobs []string, needs ...throttle.Need) {
	t.Helper()
	for _, job := range jobs {
		if d := s.acquire(t, job, needs...); !d.OK() {
			t.Errorf("granted job %s: %s", job, d)
		}
	}
}

func (s *fixture) forget(t redistest.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.lanes.Forget(background, job(id).JobID); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// traces is all keys that only waiting jobs have. When none waits there must be
// none.
func (s *fixture) traces(t redistest.TB) (keys []string) {
	t.Helper()
	all, err := s.rdb.Keys(background, "hg:*").Result()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, key := range all {
		name := strings.TrimPrefix(key, hg(""))
		kind, _, _ := strings.Cut(name, ":")
		switch kind {
		case "limits", "limit", "summaries", "m", "admitted", "seq", "changes", "leader", "epoch", "deleted", "changelog":
		default:
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

func second[T any](_ T, err error) error { return err }
