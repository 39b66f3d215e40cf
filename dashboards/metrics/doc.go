// Package metrics gives what headgate does to Prometheus.
//
// There are two sorts of metrics. The process's own, counters and histograms of
// what it did itself: sum them over processes. And the scope's, headgate_scope_…,
// which are read from Redis at each scrape and are the same from every process:
// take their max, not their sum. All have the label scope, for scopes do not add
// up. Other labels are names of limits, queues, task types and schedules, a bounded
// number of each; never a key, a job's ID or a URL.
//
//	registry.MustRegister(metrics.New(server, rdb, metrics.Options{}))
//
// What the process did costs a scrape nothing. What Redis says costs a few round
// trips, one more for each hundred meters, and some for each queue, however many
// jobs and keys there are.
//
// Two Redis are asked, which may be one: the limiter's for what waits, limits, turns and
// ticks, and that of the queues. A scrape that cannot read all of it has
// headgate_scope_up at 0 and what it could read; series that are missing are not zeros.
package metrics
