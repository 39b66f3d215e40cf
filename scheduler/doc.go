// Package scheduler decides when the jobs of asynq queues run. It puts jobs without a permit back
// into their queue, moves them to the head of the queue when their permits exist, and spaces the
// retries of failed jobs. Package cron below it enqueues jobs by the clock.
//
// To use it in a program that uses asynq, replace two constructors and return a Rule for each task:
//
//	rules := scheduler.Rules{
//		Limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}},
//		RuleFor: func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
//			return scheduler.Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
//		},
//	}
//	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 10})
//	client := scheduler.NewClient(rdb)
//
// Everything else works as in asynq: handlers, middleware, options of tasks, retries, periodic
// tasks, groups, the Inspector and asynqmon. Waiting for a permit is no failure: it spends no
// attempt, and no ErrorHandler is called.
package scheduler
