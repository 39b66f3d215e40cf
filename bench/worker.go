package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// worker is a process that runs jobs and tells when each started.
type worker struct {
	process *exec.Cmd
	mu      sync.Mutex
	at      []int64 // microseconds
	once    sync.Once
	err     error
}

// workerCommand is the argument with which this program is such a process. The
// address of Redis follows.
const workerCommand = "failover-worker"

func startWorker(b *bench) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{process: exec.Command(program, workerCommand, b.server.Addr())}
	w.process.Stderr = b.stderr
	out, err := w.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.process.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() { // it is ready
		return nil, errors.Join(errors.New("a worker did not start"), w.kill())
	}
	go w.listen(lines)
	return w, nil
}

func (w *worker) listen(lines *bufio.Scanner) {
	for lines.Scan() {
		if at, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			w.mu.Lock()
			w.at = append(w.at, at)
			w.mu.Unlock()
		}
	}
}

func (w *worker) starts() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.at)
}

// startsAfter waits until a job has started after a moment, a minute at most: what
// is still unused then has no end.
func (w *worker) startsAfter(b *bench, moment int64) ([]int64, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		starts := w.starts()
		if len(starts) > 0 && slices.Max(starts) > moment {
			return starts, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.New("no job started for a minute")
		}
		if err := b.sleep(10 * time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// kill ends the process without a word, as kill -9 does.
func (w *worker) kill() error {
	w.once.Do(func() {
		w.err = w.process.Process.Kill()
		_ = w.process.Wait() // it was killed
	})
	return w.err
}

// work is this program as a worker: it prints when each job starts. The limits
// are in Redis.
func work(ctx context.Context, addr string, stdout, stderr io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2 * poolSize})
	defer rdb.Close()
	limiter := lanes.New(throttle.New(rdb, throttle.RedisOptions{}))
	log := slog.New(slog.NewTextHandler(stderr, nil))
	srv, err := scheduler.NewServer(rdb, scheduler.Rules{For: headgateRule}, serverConfig(spec{Concurrency: poolSize}),
		scheduler.WithLimiter(limiter), scheduler.WithLogger(log))
	if err != nil {
		return err
	}
	err = srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		_, err := fmt.Fprintln(stdout, time.Now().UnixMicro()) // one write, so lines stay whole
		return err
	}))
	if err != nil {
		return err
	}
	defer srv.Shutdown()
	fmt.Fprintln(stdout, "ready")
	<-ctx.Done()
	return nil
}
