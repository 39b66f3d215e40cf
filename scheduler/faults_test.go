package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// What may go wrong between a process and Redis, as hooks of its clients.

// wire leads to Redis, and can be cut or slow.
type wire struct {
	cut  atomic.Bool
	slow atomic.Int64 // nanoseconds that each command takes
}

func (w *wire) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if d := time.Duration(w.slow.Load()); d > 0 {
		if sleep(ctx, d); ctx.Err() != nil {
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
	}
	if w.cut.Load() {
		if strings.HasPrefix(cmd.Name(), "eval") { // others may come with a lock held, which a bubble takes for work
			time.Sleep(100 * time.Millisecond) // as a dial that fails
		}
		cmd.SetErr(syscall.ECONNREFUSED)
		return syscall.ECONNREFUSED
	}
	return next(ctx, cmd)
}

// tap counts the commands that are of a kind, and makes each take a while.
type tap struct {
	is    func(cmd redis.Cmder) bool
	takes time.Duration
	n     atomic.Int64
}

func (p *tap) hook() redis.Hook {
	return redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if p.is(cmd) {
			p.n.Add(1)
			time.Sleep(p.takes)
		}
		return next(ctx, cmd)
	})
}

// isScript recognizes the calls of a script by its hash.
func isScript(name string) func(cmd redis.Cmder) bool {
	hash := script.New(name).Hash()
	return func(cmd redis.Cmder) bool {
		args := cmd.Args()
		return cmd.Name() == "evalsha" && len(args) > 1 && args[1] == hash
	}
}

// isDequeue recognizes lua/asynq/dequeue.lua.
func isDequeue(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && len(args) == 17 && strings.HasSuffix(fmt.Sprint(args[3]), ":pending")
}

// isPromote recognizes lua/asynq/promote.lua of the queue "default".
func isPromote(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && len(args) > 4 && fmt.Sprint(args[2]) == "3" &&
		fmt.Sprint(args[3]) == asynqdb.Key("default", asynqdb.Pending) && fmt.Sprint(args[4]) == asynqdb.Key("default", asynqdb.Retry)
}

// fuse kills a process at a command of its choice, or when kill is called: neither that command nor
// any later one reaches Redis or is answered.
type fuse struct {
	blows    func(cmd redis.Cmder) bool // nil: never by itself
	kill     func()
	blown    chan struct{}
	released chan struct{} // when the test ends
}

func newFuse(blows func(cmd redis.Cmder) bool) *fuse {
	f := &fuse{blows: blows}
	f.arm()
	return f
}

func (f *fuse) arm() {
	f.blown, f.released = make(chan struct{}), make(chan struct{})
	f.kill = sync.OnceFunc(func() { close(f.blown) })
}

// die kills the process in the midst of a job.
func (f *fuse) die() error {
	f.kill()
	<-f.released
	return nil
}

// dead reports whether the process has died.
func (f *fuse) dead() bool {
	select {
	case <-f.blown:
		return true
	default:
		return false
	}
}

// hook makes calls of a dead process wait until the test ends.
func (f *fuse) hook() redis.Hook {
	return before(func(_ context.Context, cmds ...redis.Cmder) error {
		if f.blows != nil && len(cmds) == 1 && f.blows(cmds[0]) {
			f.kill()
		}
		if !f.dead() {
			return nil
		}
		<-f.released
		return errors.New("the process has died")
	})
}

// before is a hook that is called before each command or pipeline, and can fail it.
type before func(ctx context.Context, cmds ...redis.Cmder) error

func (b before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !isGreeting(cmds[0]) {
			if err := b(ctx, cmds...); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func (b before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isGreeting(cmd) {
			if err := b(ctx, cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// isGreeting reports whether a connection begins with a command. go-redis sends it with a
// subscriber's lock held: if it waited, others would wait for that lock, and no bubble's clock goes
// on then.
func isGreeting(cmd redis.Cmder) bool { return cmd.Name() == "hello" || cmd.Name() == "client" }
