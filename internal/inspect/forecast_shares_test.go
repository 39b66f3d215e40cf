package inspect_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// TestForecast_Shares: with weighted or strict queues, and with weighted fairness keys, jobs run when
// their positions and the status say so.
func TestForecast_Shares(t *testing.T) {
	for _, strict := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			quiet := slog.New(slog.DiscardHandler)
			ran := map[string]time.Time{}
			rules := scheduler.Rules{
				Limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(10)}},
				RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
					tenant := string(task.Payload())
					return scheduler.Rule{Needs: []throttle.Need{{Limit: "api"}}, FairnessKey: tenant, FairnessWeight: map[string]int{"large": 6}[tenant]}, nil
				},
			}
			config := asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel, Queues: map[string]int{"critical": 6, "default": 1}, StrictPriority: strict}
			server, err := scheduler.NewServer(rdb, rules, config, scheduler.WithLogger(quiet))
			must(t, err)
			must(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				ran[id] = time.Now()
				return nil
			})))
			defer server.Shutdown()
			client := scheduler.NewClient(rdb)
			const jobs = 200
			for i := range jobs {
				for tenant, queue := range map[string]string{"urgent": "critical", "large": "default", "small": "default"} {
					_, err := client.Enqueue(asynq.NewTask(tenant, []byte(tenant)), asynq.Queue(queue), asynq.TaskID(fmt.Sprint(tenant, i)))
					must(t, err)
				}
			}
			time.Sleep(7 * time.Second)

			q := inspect.New(rdb, waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet})), "default")
			f, err := q.Forecast(t.Context(), forecast.Options{})
			must(t, err)
			said := map[string]time.Time{}
			for i := range jobs {
				for _, tenant := range []string{"urgent", "large", "small"} {
					id := throttle.JobID{Queue: map[bool]string{true: "critical", false: "default"}[tenant == "urgent"], ID: fmt.Sprint(tenant, i)}
					place, waits, err := q.Limiter.Position(t.Context(), id)
					must(t, err)
					if waits && !place.Granted {
						said[id.ID] = f.Position(place).StartsAt
					}
				}
			}
			began := time.Now()
			time.Sleep(2 * time.Minute)
			for id, at := range said {
				truth := ran[id]
				if tenant, last := strings.CutPrefix(id, "the last "); last {
					for i := range jobs {
						if at := ran[fmt.Sprint(tenant, i)]; at.After(truth) {
							truth = at
						}
					}
				}
				if off := at.Sub(truth).Abs(); off > 3*time.Second { // a round has 49 turns, in 5 s
					t.Errorf("strict %t: %s was to run in %s, and did in %s", strict, id, at.Sub(began), truth.Sub(began))
				}
			}
			if len(said) < 500 {
				t.Errorf("only %d tell when they run", len(said))
			}
		})
	}
}
