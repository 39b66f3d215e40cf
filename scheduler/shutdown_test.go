package scheduler

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// away is a Redis that can go away: calls hang, whatever their contexts say, as those of a client
// without ContextTimeoutEnabled, or connections are refused, and the client retries for some time.
type away struct {
	m        *miniredis.Miniredis
	refuses  atomic.Bool
	hangs    atomic.Bool
	released chan struct{}
	waiting  atomic.Int64 // number of calls that hang
	calls    atomic.Int64 // number of calls that began while the Redis was away
	mu       sync.Mutex
	conns    []net.Conn
}

func newAway(t *testing.T) *away {
	m, _ := redistest.Mini(t)
	return &away{m: m, released: make(chan struct{})}
}

// awayConn has the errors of a TCP connection whose other end has gone.
type awayConn struct{ net.Conn }

func asEOF(n int, err error) (int, error) {
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

func (c awayConn) Read(b []byte) (int, error)         { return asEOF(c.Conn.Read(b)) }
func (c awayConn) Write(b []byte) (int, error)        { return asEOF(c.Conn.Write(b)) }
func (c awayConn) SetDeadline(t time.Time) error      { _ = c.Conn.SetDeadline(t); return nil }
func (c awayConn) SetReadDeadline(t time.Time) error  { _ = c.Conn.SetReadDeadline(t); return nil }
func (c awayConn) SetWriteDeadline(t time.Time) error { _ = c.Conn.SetWriteDeadline(t); return nil }

func (a *away) client(t *testing.T) *redis.Client {
	options := *redistest.MiniClient(t, a.m).(*redis.Client).Options()
	dial := options.Dialer
	options.MaxRetries, options.MaxRetryBackoff = 10, time.Second // as those of the commands
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if a.refuses.Load() {
			return nil, syscall.ECONNREFUSED
		}
		c, err := dial(ctx, network, addr)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns = append(a.conns, c)
		return awayConn{c}, err
	}
	rdb := redis.NewClient(&options)
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if ctx.Err() != nil { // it is not sent
			return next(ctx, cmd)
		}
		if a.refuses.Load() || a.hangs.Load() {
			a.calls.Add(1)
		}
		if a.hangs.Load() {
			a.waiting.Add(1)
			<-a.released
			a.waiting.Add(-1)
		}
		return next(ctx, cmd)
	}))
	t.Cleanup(func() {
		_ = rdb.Close()
		time.Sleep(time.Minute) // connections that are being made end
	})
	return rdb
}

// goAway ends all connections, or leaves them without replies.
func (a *away) goAway(hangs bool) {
	if hangs {
		a.hangs.Store(true)
		return
	}
	a.refuses.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		_ = c.Close()
	}
}

func (a *away) comeBack() {
	a.refuses.Store(false)
	if a.hangs.Swap(false) {
		close(a.released)
	}
}

// TestShutdown_RedisAway_Ends: if Redis hangs or is gone, a shutdown ends a second after its timeout at the
// latest. Nothing panics afterwards, though the program closes the client, and calls are not
// repeated.
func TestShutdown_RedisAway_Ends(t *testing.T) {
	slow(t)
	const timeout = 8 * time.Second
	for name, hangs := range map[string]bool{"hangs": true, "refuses": false} {
		for handler, returns := range map[string]bool{"idle": true, "handler never returns": false} {
			t.Run(name+"/"+handler, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, never, started := newAway(t), make(chan struct{}), make(chan struct{}, 1)
					rdb := a.client(t)
					s := newServer(t, rdb, onePerSecond, asynq.Config{Concurrency: 2, ShutdownTimeout: timeout})
					err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
						started <- struct{}{}
						<-never
						return nil
					}))
					if err != nil {
						t.Fatal(err)
					}
					if !returns {
						if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil)); err != nil {
							t.Fatal(err)
						}
						<-started
					}
					time.Sleep(10 * time.Second)
					a.goAway(hangs)
					time.Sleep(3 * time.Second) // all parts have noticed
					began := time.Now()
					s.Shutdown()
					if took := time.Since(began); took > timeout+finishTime {
						t.Errorf("the shutdown took %s, want %s at most", took, timeout+finishTime)
					}
					s.Shutdown()
					time.Sleep(time.Second)
					before := a.calls.Load()
					_ = rdb.Close()
					time.Sleep(time.Minute)
					if calls := a.calls.Load() - before; calls > 0 {
						t.Errorf("%d calls after the shutdown", calls)
					}
					a.comeBack()
					time.Sleep(time.Minute)
					if n := a.waiting.Load(); n > 0 {
						t.Errorf("%d calls still hang", n)
					}
					close(never)
				})
			})
		}
	}
}

// TestShutdown_RedisAway_KeepsJobs: a job that a shutdown could not put back runs again when its lease
// has ended.
func TestShutdown_RedisAway_KeepsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, never, started := newAway(t), make(chan struct{}), make(chan string, 2)
		run := func(rdb redis.UniversalClient, hang chan struct{}) *Server {
			s := newServer(t, rdb, nil, asynq.Config{Concurrency: 1})
			err := s.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				started <- id
				<-hang
				return nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		rdb := a.client(t)
		s := run(rdb, never)
		info, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Retention(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		<-started
		a.goAway(true)
		s.Shutdown()
		_ = rdb.Close()
		a.comeBack()
		close(never)
		ended := make(chan struct{})
		close(ended)
		other := redistest.MiniClient(t, a.m)
		run(other, ended)
		if id := <-started; id != info.ID {
			t.Errorf("job %s ran, want %s", id, info.ID)
		}
		time.Sleep(time.Second)
		again, err := asynq.NewInspectorFromRedisClient(other).GetTaskInfo("default", info.ID)
		if err != nil || again.State != asynq.TaskStateCompleted || again.Retried != 0 {
			t.Errorf("the job is %+v (%v), want completed without a failure", again, err)
		}
	})
}

// TestShutdown_RedisComesBack: if Redis is back before the timeout, what has ended is written.
func TestShutdown_RedisComesBack(t *testing.T) {
	for name, hangs := range map[string]bool{"hangs": true, "refuses": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, started := newAway(t), make(chan struct{})
				rdb := a.client(t)
				s := newServer(t, rdb, nil, asynq.Config{Concurrency: 1})
				err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					close(started)
					time.Sleep(time.Second)
					return nil
				}))
				if err != nil {
					t.Fatal(err)
				}
				info, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil, asynq.Retention(time.Hour)))
				if err != nil {
					t.Fatal(err)
				}
				<-started
				a.goAway(hangs)
				time.AfterFunc(4*time.Second, a.comeBack)
				s.Shutdown()
				info, err = asynq.NewInspectorFromRedisClient(redistest.MiniClient(t, a.m)).GetTaskInfo("default", info.ID)
				if err != nil || info.State != asynq.TaskStateCompleted {
					t.Errorf("the job is %+v (%v), want completed", info, err)
				}
			})
		})
	}
}

// TestShutdown_DuringStart: a Start that waits for Redis starts nothing after a Shutdown.
func TestShutdown_DuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAway(t)
		s := newServer(t, a.client(t), onePerSecond, asynq.Config{})
		a.goAway(true)
		started := make(chan error, 1)
		go func() { started <- s.Start(asynq.NotFoundHandler()) }()
		synctest.Wait()
		began := time.Now()
		s.Shutdown()
		if took := time.Since(began); took > 0 {
			t.Errorf("the shutdown took %s, want no time", took)
		}
		a.comeBack()
		if err := <-started; !errors.Is(err, asynq.ErrServerClosed) {
			t.Errorf("Start returned %v, want %v", err, asynq.ErrServerClosed)
		}
	})
}
