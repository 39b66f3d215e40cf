package asynqdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// inBetween is what happens to the job "it" between a script whose answer gets lost, and its
// repeat.
var inBetween = map[string]func(t *testing.T, db asynqdb.DB){
	"nothing": func(*testing.T, asynqdb.DB) {},
	"granted": grant,
	"begun":   begin,
	"ended":   end,
}

// grant makes the job pending, whatever became of it.
func grant(t *testing.T, db asynqdb.DB) {
	t.Helper()
	switch state := stateOf(t, db); state {
	case "":
		add(t, db.Redis, "it")
	case "pending":
	case "active":
		if forgiven, err := db.Forgive(t.Context(), it("", messageOf(t, db)), 100); err != nil || !forgiven {
			t.Fatal(forgiven, err)
		}
		fallthrough
	default:
		if err := asynq.NewInspectorFromRedisClient(db.Redis).RunTask("default", "it"); err != nil {
			t.Fatal(err)
		}
	}
}

// begin has another worker take the job, under a lease that ends in the same second.
func begin(t *testing.T, db asynqdb.DB) {
	t.Helper()
	grant(t, db)
	jobs, err := db.Dequeue(t.Context(), asynqdb.NewDequeue("default", leaseEnd, false), 1)
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
}

// end has another worker run the job.
func end(t *testing.T, db asynqdb.DB) {
	t.Helper()
	begin(t, db)
	_, err := db.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.LRem(t.Context(), asynqdb.Key("default", asynqdb.Active), 0, "it")
		p.ZRem(t.Context(), asynqdb.Key("default", asynqdb.Lease), "it")
		return p.Del(t.Context(), asynqdb.Hash("default", "it")).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

var leaseEnd = time.Now().Add(asynqdb.LeaseTime).Unix()

// it is the job "it" as a Dequeue with that name took it.
func it(dequeue string, msg []byte) asynqdb.Job {
	return asynqdb.Job{JobID: throttle.JobID{Queue: "default", ID: "it"}, Msg: msg, Dequeue: dequeue}
}

// named returns the names of jobs of the default queue.
func named(ids ...string) (jobs []throttle.JobID) {
	for _, id := range ids {
		jobs = append(jobs, throttle.JobID{Queue: "default", ID: id})
	}
	return jobs
}

func stateOf(t *testing.T, db asynqdb.DB) string {
	states, err := db.Fields(t.Context(), "default", asynqdb.FieldState, "it")
	if err != nil {
		t.Fatal(err)
	}
	return states[0]
}

func messageOf(t *testing.T, db asynqdb.DB) []byte {
	messages, err := db.Fields(t.Context(), "default", asynqdb.FieldMessage, "it")
	if err != nil {
		t.Fatal(err)
	}
	return []byte(messages[0])
}

// lostAnswer loses the answer to a client's next script, which the client sends again.
type lostAnswer struct {
	t             *testing.T
	db            asynqdb.DB // by another client
	between       func(t *testing.T, db asynqdb.DB)
	before, after map[string]any // what asynq keeps, without the repeat and with it
}

func (l *lostAnswer) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if err != nil && !errors.Is(err, redis.Nil) || l.before != nil || !strings.HasPrefix(cmd.Name(), "eval") {
		return err
	}
	l.between(l.t, l.db)
	l.before = redistest.ContentsOf(l.t, l.db.Redis, "asynq:{default}:*")
	err = next(ctx, cmd)
	l.after = redistest.ContentsOf(l.t, l.db.Redis, "asynq:{default}:*")
	return err
}

// TestRepeatAfterALostAnswer: a script that is sent again changes nothing, whatever became of
// its job meanwhile: above all if another worker has the job.
func TestRepeatAfterALostAnswer(t *testing.T) {
	scripts := map[string]struct {
		taken, denied bool
		do            func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error
	}{
		"dequeue": {do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			_, err := db.Dequeue(ctx, d, 1)
			return err
		}},
		"put_back": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			j := &asynqdb.PutBack{Job: it(d.Name, []byte("put back")), At: time.Now().Add(time.Hour), Scope: "s"}
			db.PutBack(ctx, "default", j)
			return j.Err
		}},
		"put_back of a lease that has ended": {taken: true, do: func(ctx context.Context, db asynqdb.DB, _ *asynqdb.Dequeue) error {
			db.Redis.ZAdd(ctx, asynqdb.Key("default", asynqdb.Lease), redis.Z{Score: 7, Member: "it"})
			j := &asynqdb.PutBack{Job: it("", []byte("put back")), At: time.Now().Add(time.Hour), Scope: "s"}
			j.Ended = 7
			db.PutBack(ctx, "default", j)
			return j.Err
		}},
		"crash": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			_, err := db.Forgive(ctx, it(d.Name, []byte("crash")), 1000)
			return err
		}},
		"crash of a lease that has ended": {taken: true, do: func(ctx context.Context, db asynqdb.DB, _ *asynqdb.Dequeue) error {
			db.Redis.ZAdd(ctx, asynqdb.Key("default", asynqdb.Lease), redis.Z{Score: 7, Member: "it"})
			j := it("", []byte("crash"))
			j.Ended = 8
			_, err := db.Forgive(ctx, j, 1000)
			return err
		}},
		"extend_lease": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			_, err := db.ExtendLeases(ctx, "default", leaseEnd+30, map[string]string{"it": d.Name})
			return err
		}},
		"write_result": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			return db.WriteResult(ctx, it(d.Name, nil), []byte("result"))
		}},
		"give_back": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			return db.GiveBack(ctx, it(d.Name, nil))
		}},
		"promote": {denied: true, do: func(ctx context.Context, db asynqdb.DB, _ *asynqdb.Dequeue) error {
			_, err := db.Promote(ctx, named("it")...)
			return err
		}},
		"postpone": {denied: true, do: func(ctx context.Context, db asynqdb.DB, _ *asynqdb.Dequeue) error {
			return db.Postpone(ctx, "default", map[string]time.Time{"it": time.Now().Add(2 * time.Hour)})
		}},
		"attempt": {taken: true, do: func(ctx context.Context, db asynqdb.DB, _ *asynqdb.Dequeue) error {
			return db.NoteAttempt(ctx, "default", "it", asynqdb.Attempt{At: time.Now(), Error: "why"})
		}},
		"identify": {taken: true, do: func(ctx context.Context, db asynqdb.DB, d *asynqdb.Dequeue) error {
			_, err := db.IdempotencyKey(ctx, "default", "it", "name")
			return err
		}},
	}
	for script, s := range scripts {
		for what, between := range inBetween {
			if script == "dequeue" && what == "granted" {
				continue // then it takes the job, as any dequeue does
			}
			t.Run(script+"/"+what, func(t *testing.T) {
				redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
					db := asynqdb.New(rdb)
					add(t, rdb, "it")
					d := asynqdb.NewDequeue("default", leaseEnd, false)
					if s.taken {
						if _, err := db.Dequeue(t.Context(), d, 1); err != nil {
							t.Fatal(err)
						}
					}
					if s.denied {
						if err := db.Deny(t.Context(), "default", time.Now().Add(time.Hour)); err != nil {
							t.Fatal(err)
						}
					}
					l := &lostAnswer{t: t, db: db, between: between}
					opts := *rdb.(*redis.Client).Options()
					hooked := redis.NewClient(&opts)
					defer hooked.Close()
					hooked.AddHook(redistest.Hook(l.around))
					err := s.do(t.Context(), asynqdb.New(hooked), d)
					if what == "nothing" && err != nil && !strings.Contains(err.Error(), "NOT FOUND") {
						t.Error(err)
					}
					if diff := cmp.Diff(l.before, l.after); diff != "" || l.before == nil {
						t.Errorf("the repeat changed what asynq keeps: before (-), after (+)\n%s", diff)
					}
				})
			})
		}
	}
}
