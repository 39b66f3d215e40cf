// Package scheduler runs the jobs of asynq queues under limits. It puts jobs without a permit back,
// moves them to the head of their queue when permits are available, and delays the retries of
// failed jobs. Package cron enqueues jobs on a schedule.
//
// To use the package in a program that uses asynq, replace two constructors and return a Rule for
// each task:
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
