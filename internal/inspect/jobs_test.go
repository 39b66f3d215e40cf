package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// many returns a Redis with pending jobs, or with jobs archived one a second.
func many(t *testing.T, n int, archived bool) *Queues {
	t.Helper()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	q := New(rdb, waitdb.New(throttle.New(rdb, throttle.Options{})), "default")
	t.Cleanup(q.Close)
	client := scheduler.NewClient(rdb)
	began := time.Now().Add(-time.Hour).Unix()
	for i := range n {
		id := fmt.Sprint(i)
		_, err := client.Enqueue(asynq.NewTask("mine", nil, asynq.TaskID(id)))
		if err == nil && archived {
			err = q.Inspector.ArchiveTask("default", id)
			rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Archived), redis.Z{Score: float64(began + int64(i)), Member: id})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// TestListPage: no job is listed twice, although jobs leave meanwhile.
func TestListPage(t *testing.T) {
	const n = 2*pageSize + 30
	for _, archived := range []bool{false, true} {
		q := many(t, n, archived)
		var listed []int
		for job, err := range q.List(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			var i int
			if _, err := fmt.Sscan(job.ID, &i); err != nil {
				t.Fatal(err)
			}
			listed = append(listed, i)
			if archived && len(listed) == 10 { // the oldest leaves, and all others move up
				if err := q.Inspector.DeleteTask("default", "0"); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := n
		if archived {
			slices.Reverse(listed) // the newest is first
			want--
		}
		if !slices.IsSorted(listed) || len(listed) != want || len(slices.Compact(listed)) != want {
			t.Errorf("archived %v: want %d jobs in order, each once: %v", archived, want, listed)
		}
	}
}

// TestList_ArchivedSince: the newest archived job is first, with when it was archived.
func TestList_ArchivedSince(t *testing.T) {
	for job, err := range many(t, 5, true).List(t.Context(), Filter{States: []string{"archived"}}) {
		if err != nil || job.ID != "4" || time.Since(job.Since) < 59*time.Minute {
			t.Errorf("%+v, %v", job, err)
		}
		break
	}
}
