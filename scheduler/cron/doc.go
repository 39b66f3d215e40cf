// Package cron enqueues asynq tasks at the times of cron lines, from any
// number of processes, each tick once.
//
// # The model
//
// An [Entry] is a task and a cron line; each moment that the line matches is a
// tick. A [Runner] holds a set of entries and enqueues a job for every tick.
// Most programs make one, give it its entries with Set and call Run, in every
// replica:
//
//	runner := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
//	err := runner.Set([]cron.Entry{{Name: "nightly", Cron: "30 2 * * *", Zone: "Europe/London", Type: "report:send"}})
//	…
//	err = runner.Run(ctx)
//
// The replicas need no leader. What they know of an entry is a hash in Redis;
// a tick happens when one of them moves the hash on, and so for all of them.
// They may come, go and stall as they like. There is no clock to keep in step
// either: Redis's alone decides what is due.
//
// # What becomes of a tick
//
// A tick that finds a process within 30 seconds is enqueued. Of later ones
// [Missed] decides, as after an outage; while the job of the tick before is
// unfinished [Overlap] does. [Runner.Pause] keeps an entry from ticking on all
// replicas, [Runner.Resume] ends that, [Runner.Trigger] enqueues a job beside
// the ticks, and [Runner.List] says what became of the last one.
//
// # Scopes
//
// Runners of one scope share their entries' ticks: a name means the same entry
// to all of them. Two programs on one Redis whose entries have nothing to do
// with each other take a scope each.
package cron
