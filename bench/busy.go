package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

type busyCommand struct {
	Queues  int           `default:"4" help:"Queues whose workers are busy. One more queue has free workers."`
	Workers int           `default:"1" help:"Workers of each busy queue."`
	Takes   time.Duration `default:"700ms" help:"How long a job of a busy queue runs."`
	Rate    int           `default:"20" help:"Permits a second of the funnel that all queues share."`
	Random  int           `help:"Measure that many random worlds of this kind instead."`
	Seed    uint64        `default:"1" help:"Of the random worlds."`
	Repeat  int           `default:"3" help:"Runs of each world. The row has the median."`
	Warmup  time.Duration `default:"5s" help:"How long they run before it counts."`
	Observe time.Duration `default:"20s" help:"For how long permits are counted, by Redis's clock."`
	JSON    bool          `name:"json" help:"Print one JSON array."`
}

// busyRow says which part of the permits of a funnel queues used that always had waiting jobs.
type busyRow struct {
	Case   string  `json:"case" table:"case"`
	System string  `json:"system" table:"system"`
	Used   float64 `json:"limit_used" table:"limit used,%"`
	Worst  float64 `json:"limit_used_worst" table:"the worst run,%"`
	Busy   float64 `json:"busy_queues_share" table:"of it busy queues,%"`
	// Alone is what the free queue uses without the others: the most that this machine can do.
	Alone float64 `json:"limit_used_alone" table:"the free queue alone,%"`
}

// busyWorkerCommand is the first argument with which this program is a worker of one queue. The
// address of Redis and the world's part as JSON follow.
const busyWorkerCommand = "busy-worker"

// busyQueue is a worker process of one queue.
type busyQueue struct {
	Queue   string
	Workers int
	Takes   time.Duration
	Rate    int
}

// Run measures one world, or random ones.
func (c *busyCommand) Run(b *bench) error {
	if c.Queues < 1 || c.Workers < 1 || c.Rate < 1 || c.Repeat < 1 || c.Observe <= 0 || c.Random < 0 {
		return errors.New("--queues, --workers, --rate, --repeat, --observe: want more than 0")
	}
	worlds := [][]busyQueue{c.world()}
	if c.Random > 0 {
		worlds = nil
		random := rand.New(rand.NewPCG(c.Seed, 0))
		for range c.Random {
			worlds = append(worlds, randomBusy(random))
		}
	}
	var rows []busyRow
	for _, world := range worlds {
		var used, busy, alone []float64
		for range c.Repeat {
			u, s, err := c.observe(b, world)
			if err != nil {
				return err
			}
			most, _, err := c.observe(b, world[:1])
			if err != nil {
				return err
			}
			used, busy, alone = append(used, u), append(busy, s), append(alone, most)
		}
		row := busyRow{Case: busyCase(world), System: "headgate", Used: median(used), Worst: used[0], Busy: median(busy), Alone: median(alone)}
		for _, u := range used {
			row.Worst = min(row.Worst, u)
		}
		b.note("busy: %s: %s, worst %s, alone %s", row.Case, percent(row.Used), percent(row.Worst), percent(row.Alone))
		rows = append(rows, row)
	}
	return printRows(b, c.JSON, rows)
}

func (c *busyCommand) world() []busyQueue {
	world := []busyQueue{{"free", 30, 0, c.Rate}}
	for i := range c.Queues {
		world = append(world, busyQueue{fmt.Sprint("busy", i), c.Workers, c.Takes, c.Rate})
	}
	return world
}

// randomBusy returns a world in which the busy queues cannot take all permits.
func randomBusy(random *rand.Rand) []busyQueue {
	world := []busyQueue{{"free", 30, 0, 10 + random.IntN(31)}}
	for i := range 1 + random.IntN(5) {
		takes := time.Duration(300+random.IntN(2700)) * time.Millisecond
		world = append(world, busyQueue{fmt.Sprint("busy", i), 1 + random.IntN(3), takes, world[0].Rate})
	}
	return world
}

func busyCase(world []busyQueue) string {
	var busy []string
	for _, q := range world[1:] {
		busy = append(busy, fmt.Sprintf("%s of %s", display.Count(q.Workers, "worker"), q.Takes))
	}
	return fmt.Sprintf("%d/s, a free queue and %s", world[0].Rate, strings.Join(busy, ", "))
}

// observe runs a world, and returns the part of the permits that was used, and the busy queues' part
// of these. Each start is counted at its permit's time, which is of Redis's clock.
func (c *busyCommand) observe(b *bench, world []busyQueue) (used, busy float64, err error) {
	if err := b.empty(); err != nil {
		return 0, 0, err
	}
	starts := make(chan busyStart, 1000)
	var workers []*exec.Cmd
	defer func() {
		for _, w := range workers {
			_ = w.Process.Kill()
			_ = w.Wait()
		}
	}()
	backlog := world[0].Rate * int((c.Warmup+c.Observe+5*time.Second)/time.Second)
	for _, q := range world {
		for range backlog {
			if err := b.enqueue(job{}, asynq.Queue(q.Queue)); err != nil {
				return 0, 0, err
			}
		}
	}
	for _, q := range world {
		w, err := startBusy(b, q, starts)
		if err != nil {
			return 0, 0, err
		}
		workers = append(workers, w)
	}
	if err := b.sleep(c.Warmup); err != nil {
		return 0, 0, err
	}
	began, err := b.rdb.Time(b.ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	ended, all, ofBusy := began.Add(c.Observe), 0, 0
	for end := time.After(c.Observe + time.Second); ; {
		select {
		case s := <-starts:
			if at := time.UnixMicro(s.at); at.After(began) && !at.After(ended) {
				all++
				if s.queue != world[0].Queue {
					ofBusy++
				}
			}
			continue
		case <-end:
		case <-b.ctx.Done():
			return 0, 0, context.Cause(b.ctx)
		}
		return float64(all) / c.Observe.Seconds() / float64(world[0].Rate), float64(ofBusy) / float64(max(1, all)), nil
	}
}

// busyStart is the start of a job: its queue, and the time from which its permit exists.
type busyStart struct {
	queue string
	at    int64
}

func startBusy(b *bench, q busyQueue, starts chan<- busyStart) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	w := exec.Command(program, busyWorkerCommand, b.server.Addr(), string(text))
	w.Stderr = b.stderr
	out, err := w.StdoutPipe()
	if err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var at int64
			if _, err := fmt.Sscan(lines.Text(), &at); err == nil {
				starts <- busyStart{q.Queue, at}
			}
		}
	}()
	return w, w.Start()
}

// busyWorker runs jobs of a queue until it is killed. For each start it prints the time of its
// permit.
func busyWorker(addr, text string) error {
	var q busyQueue
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	config := asynq.Config{Concurrency: q.Workers, LogLevel: asynq.ErrorLevel, Queues: map[string]int{q.Queue: 1}}
	limits := []throttle.Limit{{Name: shared, Kind: throttle.Funnel, Rate: throttle.PerSecond(q.Rate)}}
	server, err := scheduler.NewServer(rdb, scheduler.Rules{Limits: limits, RuleFor: headgateRule}, config, scheduler.WithLogger(silent))
	if err != nil {
		return err
	}
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		decision, _ := scheduler.GetDecision(ctx)
		fmt.Println(decision.At.Add(decision.BeginIn).UnixMicro())
		time.Sleep(q.Takes)
		return nil
	})); err != nil {
		return err
	}
	select {}
}
