// Package cron enqueues asynq tasks at the times of cron lines. Any number of processes may run the
// same schedules: each tick is enqueued once.
//
// An [Entry] is a task and a cron line; each moment that the line matches is a tick. A [Runner]
// holds a set of entries and enqueues a job for every tick. Most programs make one, give it its
// entries with Set and call Run, in every replica:
//
//	runner := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
//	err := runner.Set([]cron.Entry{
//		{Name: "nightly", Cron: "30 2 * * *", Zone: "Europe/London", Type: "report:send"},
//	})
//	…
//	err = runner.Run(ctx)
//
// A tick that a process sees within 30 seconds is enqueued. [Missed] selects which later ticks still
// run, for example after an outage. [Overlap] selects whether a tick is dropped while an earlier job
// of the entry is unfinished. [Runner.List] reports the outcome of the last tick.
//
// [Runner.Pause] stops an entry on all replicas, [Runner.Resume] ends the pause, and [Runner.Trigger]
// enqueues a job between ticks. Any process that has the entry may call them, even if it does not call
// Run.
//
// Cron lines are read in the entry's time zone. A tick at a time of day happens once every day. If the
// clocks jump over that time, the tick happens at the end of the gap; if the time occurs twice, the
// tick happens the first time. See [Entry.Next].
package cron
