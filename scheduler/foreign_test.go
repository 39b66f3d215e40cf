package scheduler

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestForeignServers: a server warns once a minute while an asynq server without headgate serves one
// of its queues, also about an archive from which that server is going to delete jobs. It does not
// warn about other servers of headgate, or about servers of other queues.
func TestForeignServers(t *testing.T) {
	const runs = "asynq servers without headgate take jobs of this server's queues, and run them without permits: stop them"
	const deletes = "asynq servers without headgate delete archived jobs beyond 10,000 of a queue: stop them"
	var log journal
	s := settings{log: log.logger(), rule: always(Rule{})}
	virtual(t, s, func(t *testing.T, st *stack) {
		st.beside(settings{rule: always(Rule{})})
		plain := func(queue string) *asynq.Server {
			config := asynq.Config{Concurrency: 1, Queues: map[string]int{queue: 1}, Logger: silent{}}
			server := asynq.NewServerFromRedisClient(redistest.MiniClient(t, st.queueServer), config)
			st.must(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
			return server
		}
		other := plain("other")
		t.Cleanup(other.Shutdown)
		db := asynqdb.New(st.rdb)
		time.Sleep(5 * time.Minute)
		if found, err := db.ForeignServers(t.Context()); len(found) > 0 || err != nil || log.times(runs) > 0 {
			t.Errorf("%v, %v, and %d warnings, want none", found, err, log.times(runs))
		}
		server := plain("default")
		time.Sleep(5 * time.Minute)
		host, _ := os.Hostname()
		want := []asynqdb.ForeignServer{{Host: host, PID: os.Getpid(), Queues: []string{"default"}}}
		found, err := db.ForeignServers(t.Context())
		if diff := cmp.Diff(want, found); diff != "" || err != nil {
			t.Errorf("%v, want (-), got (+)\n%s", err, diff)
		}
		if n := log.times(runs); n != 5 || log.times(deletes) > 0 {
			t.Errorf("%d warnings in five minutes, and %d about the archive, want 5 and none", n, log.times(deletes))
		}
		var archived []redis.Z
		for i := range fullArchive + 1 {
			archived = append(archived, redis.Z{Score: float64(time.Now().Unix()), Member: fmt.Sprint(i)})
		}
		st.must(st.rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Archived), archived...).Err())
		time.Sleep(time.Minute)
		if n := log.times(deletes); n != 1 {
			t.Errorf("%d warnings about the archive in a minute, want 1", n)
		}
		server.Shutdown()
		time.Sleep(30 * time.Second)
		before := log.times(runs)
		time.Sleep(3 * time.Minute)
		if n := log.times(runs) - before; n > 0 {
			t.Errorf("%d warnings after the server has stopped, want none", n)
		}
	})
}
