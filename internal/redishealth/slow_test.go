package redishealth

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// slowRedis is a Redis that answers nothing for some time, and the log of its Monitor.
type slowRedis struct {
	*Monitor
	log      strings.Builder
	pausedTo time.Time     // commands of before are answered then
	readTime time.Duration // after which the client gives up a command; 0 means never
	fails    error         // of each command
}

// newSlowRedis returns a slowRedis whose client has a hook of the Monitor, if hooked.
func newSlowRedis(t *testing.T, hooked bool) *slowRedis {
	t.Helper()
	_, rdb := redistest.Mini(t)
	r := &slowRedis{}
	r.Monitor = New(slog.New(slog.NewTextHandler(&r.log, nil)), "Redis", rdb, "scope:")
	if hooked {
		rdb.AddHook(r.Hook())
	}
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		wait := time.Until(r.pausedTo)
		if r.readTime > 0 && wait > r.readTime {
			time.Sleep(r.readTime)
			return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
		}
		if end, ok := ctx.Deadline(); ok && wait > time.Until(end) {
			time.Sleep(time.Until(end))
			return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded} // the connection's deadline fires before that of the context
		}
		time.Sleep(wait)
		if r.fails != nil {
			return r.fails
		}
		return next(ctx, cmd)
	}))
	return r
}

func (r *slowRedis) pause(d time.Duration) { r.pausedTo = time.Now().Add(d) }

// call makes a call with a deadline of its own, as a part of the worker does.
func (r *slowRedis) call(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	call := r.Begin()
	call.Note(ctx, r.rdb.Ping(ctx).Err())
}

// checkWithin is a check of a caller that waits for a time.
func (r *slowRedis) checkWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.Check(ctx)
}

// TestMonitor_BusySecond_IsNoOutage: the deadlines of callers say nothing about Redis. Redis is slow
// for 1.6 s ten times in a minute, and each second a probe, a scrape and a call ask it.
func TestMonitor_BusySecond_IsNoOutage(t *testing.T) {
	for name, client := range map[string]time.Duration{"patient client": 0, "hasty client": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSlowRedis(t, false)
				r.readTime = client
				if err := r.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
				for second := range 60 {
					if second%6 == 0 {
						r.pause(1600 * time.Millisecond)
					}
					end := time.Now().Add(time.Second)
					r.call(t.Context(), 100*time.Millisecond)
					for _, timeout := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} {
						if err := r.checkWithin(t.Context(), timeout); err != nil {
							t.Errorf("after %d s: %v, want the last known state", second, err)
						}
					}
					time.Sleep(time.Until(end))
				}
				time.Sleep(2 * AnswerTimeout)
				if r.log.Len() > 0 {
					t.Errorf("logged\n%swant nothing", r.log.String())
				}
			})
		})
	}
}

// TestMonitor_Hangs_IsAnOutage: a Redis that answers nothing is an outage after AnswerTimeout,
// for each part that waits for an answer, with each timeout of the client.
func TestMonitor_Hangs_IsAnOutage(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, r *slowRedis){
		"a call":               func(ctx context.Context, r *slowRedis) { r.call(ctx, time.Minute) },
		"a call that gives up": func(ctx context.Context, r *slowRedis) { r.call(ctx, 500*time.Millisecond) },
		"a probe":              func(ctx context.Context, r *slowRedis) { _ = r.checkWithin(ctx, time.Second) },
	} {
		for _, client := range []time.Duration{0, 3 * time.Second} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newSlowRedis(t, false)
					r.readTime = client
					if err := r.Check(t.Context()); err != nil {
						t.Fatal(err)
					}
					r.pause(20 * time.Second)
					go ask(t.Context(), r)
					time.Sleep(AnswerTimeout - 100*time.Millisecond)
					if _, err := r.state(); err != nil {
						t.Errorf("an outage after less than %s: %v", AnswerTimeout, err)
					}
					time.Sleep(time.Second)
					if _, err := r.state(); err == nil {
						t.Errorf("no outage after %s without an answer", AnswerTimeout)
					}
					time.Sleep(time.Minute)
					if err := r.Check(t.Context()); err != nil {
						t.Error(err)
					}
					if n := strings.Count(r.log.String(), "\n"); n != 2 || !strings.Contains(r.log.String(), `why="it does not answer"`) {
						t.Errorf("logged\n%swant the begin and the end of one outage", r.log.String())
					}
				})
			})
		}
	}
}

// TestMonitor_NodeHangs_IsAnOutage: a node of a cluster that answers nothing is an outage after
// AnswerTimeout, although the other nodes answer each time that the Monitor repeats its question. The
// check then ends.
func TestMonitor_NodeHangs_IsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hangs := newSlowRedis(t, false), true
		r.prefixes = []string{"well:", "hangs:"}
		r.cluster = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return nil, errors.New("the nodes of this test share one client")
		}})
		defer func() { _ = r.cluster.Close() }()
		r.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if key, _ := cmd.Args()[1].(string); hangs && key == "hangs:probe" {
				time.Sleep(3 * time.Second) // the ReadTimeout of a client
				return &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
			}
			return next(ctx, cmd)
		}))
		checked := make(chan error, 1)
		go func() { checked <- r.Check(t.Context()) }()
		time.Sleep(time.Minute)
		select {
		case err := <-checked:
			if !errors.Is(err, errNoAnswer) || !strings.Contains(r.log.String(), "cannot be used") {
				t.Errorf("check: %v; logged\n%swant an outage", err, r.log.String())
			}
		default:
			t.Error("a check has not ended after a minute")
		}
		hangs = false
		time.Sleep(10 * time.Second)
		if err := r.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestMonitor_OtherCallsAnswered: while other calls are answered, one that is not answered is no
// outage.
func TestMonitor_OtherCallsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRedis(t, false)
		r.pause(time.Minute)
		go func() { _ = r.checkWithin(t.Context(), time.Second) }()
		for range 20 {
			time.Sleep(time.Second)
			r.Note(t.Context(), time.Now(), nil)
		}
		if r.log.Len() > 0 {
			t.Errorf("logged\n%s", r.log.String())
		}
		time.Sleep(time.Minute)
	})
}

// TestMonitor_Refuses_AtOnce: an error of Redis or of the connection is an outage at once, also if
// the client repeats the call.
func TestMonitor_Refuses_AtOnce(t *testing.T) {
	for _, cause := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, serverError("LOADING Redis is loading"), serverError("OOM full")} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRedis(t, false)
			time.Sleep(time.Second)
			r.fails = cause
			if err := r.checkWithin(t.Context(), time.Second); !errors.Is(err, cause) {
				t.Errorf("check: %v, want %v", err, cause)
			}
			r.fails = nil
			time.Sleep(time.Second)
			if err := r.Check(t.Context()); err != nil {
				t.Error(err)
			}
			repeated := r.Begin() // by the client, for a long time
			r.fails = cause
			time.Sleep(slowCall + time.Millisecond)
			if _, err := r.state(); !errors.Is(err, cause) {
				t.Errorf("during a call that the client repeats: %v, want %v", err, cause)
			}
			repeated.Note(t.Context(), cause)
		})
	}
}

// TestMonitor_NoAnswerYet: before the first answer nothing is known, not even that Redis is well.
func TestMonitor_NoAnswerYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRedis(t, false)
		r.pause(2 * time.Second)
		if err := r.checkWithin(t.Context(), time.Second); !errors.Is(err, ErrNoAnswerYet) || ProblemOf(err) != None {
			t.Errorf("check: %v, want that there is no answer yet", err)
		}
		time.Sleep(2 * time.Second)
		if err := r.checkWithin(t.Context(), time.Second); err != nil || r.log.Len() > 0 {
			t.Errorf("check: %v; logged %s", err, r.log.String())
		}
	})
}

// TestMonitor_ClosedClient: a client that the process has closed says nothing about Redis.
func TestMonitor_ClosedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRedis(t, false)
		time.Sleep(time.Second)
		r.fails = redis.ErrClosed
		r.call(t.Context(), time.Second)
		_ = r.Check(t.Context())
		time.Sleep(2 * AnswerTimeout)
		if r.log.Len() > 0 {
			t.Errorf("logged\n%s", r.log.String())
		}
	})
}

// TestFilter_SlowAnswer_KeepsWarnings: a slow Redis delays no line and deletes none.
func TestFilter_SlowAnswer_KeepsWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRedis(t, false)
		var said strings.Builder
		log := slog.New(&OutageFilter{Handler: slog.NewTextHandler(&said, nil), Monitors: []*Monitor{r.Monitor}})
		for range 5 {
			r.pause(1200 * time.Millisecond)
			r.call(t.Context(), 100*time.Millisecond)
			began := time.Now()
			log.Warn("the limits of 3 jobs are lost")
			log.ErrorContext(MayBeLate(t.Context()), "Dequeue error: NOPERM")
			if took := time.Since(began); took > 0 {
				t.Errorf("the lines took %s", took)
			}
			time.Sleep(10 * time.Second)
		}
		if n := strings.Count(said.String(), "\n"); n != 10 {
			t.Errorf("%d of 10 lines were logged:\n%s", n, said.String())
		}
	})
}

// TestMonitor_RightsOfConcurrentCalls: calls that lack a right at the same time are one outage, which
// is known when each of them ends, so that no line about them is logged.
func TestMonitor_RightsOfConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRedis(t, false)
		time.Sleep(time.Second)
		r.fails = serverError("NOPERM this user has no permissions to run the 'zadd' command")
		r.pause(700 * time.Millisecond)
		began := time.Now()
		for range 3 {
			go func() {
				r.Note(t.Context(), began.Add(time.Nanosecond), r.fails)
				if _, err := r.state(); ProblemOf(err) != NoRights {
					t.Errorf("after a call without a right: %v", err)
				}
			}()
		}
		time.Sleep(3 * time.Second)
		if n := strings.Count(r.log.String(), "\n"); n != 1 {
			t.Errorf("logged\n%swant one line", r.log.String())
		}
	})
}

// TestHook_LinesOfOthers: an outage is known before a part that does not call Note logs its error,
// and a call that is also noted is counted once. The commands of the Monitor itself are not noted.
func TestHook_LinesOfOthers(t *testing.T) {
	for _, cause := range []error{syscall.ECONNREFUSED, serverError("NOPERM this user has no permissions to run the 'zadd' command")} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRedis(t, true)
			var said strings.Builder
			log := slog.New(&OutageFilter{Handler: slog.NewTextHandler(&said, nil), Monitors: []*Monitor{r.Monitor}})
			time.Sleep(time.Second)
			r.fails = cause
			call := r.Begin()
			time.Sleep(time.Millisecond)
			err := r.rdb.Ping(t.Context()).Err()
			log.Warn("cannot enqueue a tick", "error", err)
			call.Note(t.Context(), err)
			r.fails = nil
			time.Sleep(time.Minute)
			if err := r.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(r.log.String(), "failed_calls=1") || strings.Count(r.log.String(), "\n") != 2 || said.Len() > 0 {
				t.Errorf("%v: logged\n%s%s", cause, r.log.String(), said.String())
			}
		})
	}
}

// TestMonitor_LateError_IsNoOutage: an error right after an outage is no outage if Redis answers, for
// example because the client returns the error of an earlier attempt to connect. If it does not
// answer, the outage is reported when settleTime has passed.
func TestMonitor_LateError_IsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, late := newSlowRedis(t, false), errors.New("NOAUTH Authentication required.")
		r.fails = syscall.ECONNREFUSED
		r.call(t.Context(), time.Second)
		r.fails = nil
		time.Sleep(10 * time.Millisecond)
		r.call(t.Context(), time.Second) // "is back"
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			r.Note(t.Context(), time.Now(), late)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(r.log.String(), "cannot be used"); n != 1 {
			t.Errorf("%d outages were logged, want 1:\n%s", n, r.log.String())
		}
		r.fails = syscall.ECONNREFUSED
		r.call(t.Context(), time.Second)
		r.fails = nil
		time.Sleep(10 * time.Millisecond)
		r.call(t.Context(), time.Second)
		r.fails = late
		time.Sleep(10 * time.Millisecond)
		r.call(t.Context(), time.Second)
		time.Sleep(settleTime + time.Second)
		if n := strings.Count(r.log.String(), "cannot be used"); n != 3 {
			t.Errorf("%d outages were logged, want 3:\n%s", n, r.log.String())
		}
	})
}

// TestMonitor_ClosedConnection_IsNoOutage: a proxy or an operator closes idle connections. The Monitor
// tries a new one before it says that Redis is down.
func TestMonitor_ClosedConnection_IsNoOutage(t *testing.T) {
	broken := map[string]error{"end": io.EOF, "reset": syscall.ECONNRESET, "pipe": &net.OpError{Op: "write", Err: syscall.EPIPE}}
	for name, err := range broken {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				var log strings.Builder
				m := New(slog.New(slog.NewTextHandler(&log, nil)), "Redis", rdb, "scope:")
				fails := 1
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if fails > 0 {
						fails--
						return err
					}
					return next(ctx, cmd)
				}))
				if is := m.Check(t.Context()); is != nil || log.Len() > 0 {
					t.Errorf("one closed connection: %v, log %q", is, log.String())
				}
				fails = 2
				if is := m.Check(t.Context()); ProblemOf(is) != Unreachable {
					t.Errorf("the new connection is closed, too: %v", is)
				}
			})
		})
	}
}
