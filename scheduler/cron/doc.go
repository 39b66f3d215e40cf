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
//	err := runner.Set([]cron.Entry{
//		{Name: "nightly", Cron: "30 2 * * *", Zone: "Europe/London", Type: "report:send"},
//	})
//	…
//	err = runner.Run(ctx)
//
// The replicas need no leader: each enqueues the tick under the same job ID, and asynq
// takes one of these jobs. Redis keeps the last tick of each entry, and its clock alone
// decides what is due. [Runner] says why no tick is lost or doubled.
//
// # What becomes of a tick
//
// A tick that a process sees within 30 seconds is enqueued. Of those that come
// to light later, as after an outage, [Missed] says which still run. While a
// job of the entry is unfinished [Overlap] says whether the next tick has
// one all the same or is dropped. [Runner.List] tells what became of the last tick.
//
// [Runner.Pause] keeps an entry from ticking on all replicas, [Runner.Resume]
// ends that, and [Runner.Trigger] enqueues a job beside the ticks. Any process
// that knows the entry may call them, also one that does not call Run.
//
// # Changes of the clocks
//
// Cron lines are read in the entry's zone. A tick at a time of day comes once
// on every day: where the clocks jump over it, at the end of the gap, and where
// it comes twice, the first time. Entries for every hour go on through the
// change, so that they neither skip nor repeat one. See [Entry.Next].
//
// # Scopes
//
// Runners of one scope share their entries' ticks: a name means the same entry
// to all of them. Two programs on one Redis whose entries have nothing to do
// with each other take a scope each, in [Options].
package cron
