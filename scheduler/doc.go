// Package scheduler decides when a job runs. It puts jobs without a permit
// back into their asynq queue, calls them back at the moment their permits
// exist, and spaces the retries of failed ones. Package cron below it enqueues
// jobs by the clock.
//
// Three lines add it to a program that uses asynq:
//
//	hg := scheduler.New(rdb, throttle.New(rdb, throttle.RedisOptions{}), rules, scheduler.Options{})
//	srv := asynq.NewServerFromRedisClient(rdb, hg.Config(asynq.Config{Concurrency: 10}))
//	mux.Use(hg.Middleware)
//
// where rules says which permits a task needs.
package scheduler
