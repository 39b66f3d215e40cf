package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

type idleCommand struct {
	Workers int           `default:"20" help:"How many worker processes have nothing to do."`
	Warmup  time.Duration `default:"5s" help:"How long they run before it counts."`
	Observe time.Duration `default:"20s" help:"How long they are observed."`
	JSON    bool          `name:"json" help:"Print one JSON array."`
}

// idleRow is the cost of idle workers with two queues each. Shares are of one core.
type idleRow struct {
	Case     string  `json:"case" table:"case"`
	System   string  `json:"system" table:"system"`
	Redis    float64 `json:"redis_cpu_share" table:"Redis all,%"`
	Worker   float64 `json:"worker_cpu_share" table:"each worker,%"`
	Commands float64 `json:"commands_per_s" table:"commands/s each,1"`
}

// idleWorkerCommand is the first argument with which this program is an idle worker. The system and
// the address of Redis follow.
const idleWorkerCommand = "idle-worker"

// Run measures idle workers of headgate, then of asynq.
func (c *idleCommand) Run(b *bench) error {
	if c.Workers < 1 || c.Observe <= 0 || c.Warmup < 0 {
		return errors.New("--workers, --warmup, --observe: want more than 0")
	}
	var rows []idleRow
	for _, system := range []string{"headgate", "asynq"} {
		if err := b.empty(); err != nil {
			return err
		}
		row, err := c.observe(b, system)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return printRows(b, c.JSON, rows)
}

func (c *idleCommand) observe(b *bench, system string) (row idleRow, err error) {
	var workers []*idler
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.stop())
		}
	}()
	for range c.Workers {
		w, err := startIdler(b, system)
		if err != nil {
			return row, err
		}
		workers = append(workers, w)
	}
	b.note("idle: %d workers of %s", c.Workers, system)
	if err := b.sleep(c.Warmup); err != nil {
		return row, err
	}
	redis0, own0, err0 := spentBy(b, workers)
	err1 := b.sleep(c.Observe)
	redis1, own1, err2 := spentBy(b, workers)
	if err := errors.Join(err0, err1, err2); err != nil {
		return row, err
	}
	spent, n := redis1.since(redis0), float64(c.Workers)
	return idleRow{
		Case: fmt.Sprintf("%d idle workers, two queues each", c.Workers), System: system,
		Redis: spent.cpu.Seconds() / c.Observe.Seconds(), Worker: (own1 - own0).Seconds() / c.Observe.Seconds() / n,
		Commands: float64(spent.commands) / c.Observe.Seconds() / n,
	}, nil
}

// spentBy returns what Redis and all workers have used so far.
func spentBy(b *bench, workers []*idler) (usage, time.Duration, error) {
	sum := time.Duration(0)
	for _, w := range workers {
		cpu, err := w.cpu()
		if err != nil {
			return usage{}, 0, err
		}
		sum += cpu
	}
	u, err := b.usage()
	return u, sum, err
}

// idler is a worker process that reports its CPU time.
type idler struct {
	process *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
}

func startIdler(b *bench, system string) (*idler, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &idler{process: exec.Command(program, idleWorkerCommand, system, b.server.Addr())}
	w.process.Stderr = b.stderr
	out, err1 := w.process.StdoutPipe()
	in, err2 := w.process.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	w.ask, w.answers = in, bufio.NewScanner(out)
	return w, w.process.Start()
}

// cpu returns the CPU time of the process.
func (w *idler) cpu() (time.Duration, error) {
	if _, err := io.WriteString(w.ask, "\n"); err != nil {
		return 0, err
	}
	if !w.answers.Scan() {
		return 0, errors.New("an idle worker has ended")
	}
	return time.ParseDuration(w.answers.Text())
}

func (w *idler) stop() error {
	return errors.Join(w.ask.Close(), w.process.Wait())
}

// idleWorker runs a worker until its input ends. For each line of input it prints its CPU time.
func idleWorker(system, addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	server, err := idleServer(system, rdb)
	if err != nil {
		return err
	}
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		return err
	}
	defer server.Shutdown()
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		var own syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
			return err
		}
		fmt.Println(time.Duration(own.Utime.Nano() + own.Stime.Nano()))
	}
	return nil
}

// idleServer returns a server with stock settings.
func idleServer(system string, rdb *redis.Client) (interface {
	Start(asynq.Handler) error
	Shutdown()
}, error,
) {
	config := asynq.Config{Concurrency: 10, LogLevel: asynq.ErrorLevel, Queues: map[string]int{"default": 6, "low": 1}}
	if system == "asynq" {
		return asynq.NewServerFromRedisClient(rdb, config), nil
	}
	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}},
		RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "host"}}}, nil
		},
	}
	return scheduler.NewServer(rdb, rules, config, scheduler.WithLogger(silent))
}
