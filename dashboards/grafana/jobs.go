package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// jobs says what runs and how it ends, what queues and schedules hold, and whether
// the processes are well.
func jobs() *dashboard.DashboardBuilder {
	b := board("headgate-jobs", "headgate: jobs, queues, schedules, processes",
		"What runs and how it ends, what stands in the queues, whether ticks come in time, and whether the workers and their Redis are well.")
	health(b)
	tasks(b)
	queues(b)
	schedules(b)
	processes(b)
	return b
}

// health is the first row: whether the workers run, and what somebody should look at.
func health(b *dashboard.DashboardBuilder) {
	b.WithPanel(answer("Workers that tell", "Processes that Prometheus hears of.",
		count, now("count("+series("scope_up")+")", ""), 4, 1e6, 1e7).NoValue("NONE")).
		WithPanel(answer("Workers without Redis", "Processes that could not read all they tell from Redis.",
			count, now("count("+series("scope_up")+") - sum("+series("scope_up")+")", ""), 4, 1, 1)).
		WithPanel(answer("Jobs archived", "Jobs that will not run again unless somebody says so: worker jobs list --state archived.",
			count, now("sum("+told("queue_jobs", "queue", `state="archived"`)+")", ""), 4, 1, 100)).
		WithPanel(answer("Latest tick is late by", "For how long a schedule's tick has been due that nobody has enqueued.",
			seconds, now("max("+told("schedule_late_seconds", "schedule")+")", ""), 4, 10, 60).NoValue("no schedules")).
		WithPanel(answer("Left to asynq's polls", "Processes in which waiting jobs are not called back: asynq has another layout than expected, so they come late.",
			count, now("sum("+series("release_fallback")+")", ""), 4, 1, 1)).
		WithPanel(answer("Config files refused", "Times in the last hour that a changed config had errors, so that nothing changed.",
			count, now("sum(increase("+series("config_reloads_total", `result="failed"`)+"[1h]))", ""), 4, 1, 1).Decimals(0))
}

// tasks are how attempts to run jobs ended, by queue and type.
func tasks(b *dashboard.DashboardBuilder) {
	ended := func(metric, outcome string) string {
		return grown(metric, "queue, task", "$__range", `outcome="`+outcome+`"`)
	}
	b.WithRow(row("Jobs")).
		WithPanel(rows("How did jobs end, in the time that is shown?",
			"By queue and task. Failed: for good, each job once. put back: denied, they wait. retry after: their handler put them back. Neither spends an attempt.",
			map[string]string{"queue": "Queue", "task": "Task"},
			column{"Done", count, ended("jobs_total", "done")}, column{"Failed", count, ended("jobs_total", "failed")},
			column{"Failed attempts", count, ended("attempts_total", "failed")}, column{"Dropped", count, ended("jobs_total", "dropped")},
			column{"Put back", count, ended("attempts_total", "put_back")}, column{"Retry after", count, ended("attempts_total", "retry_after")},
			column{"Running now", count, "sum by (queue, task) (" + series("jobs_running") + ")"})).
		WithPanel(stacked(graph("Attempts by how they ended", "A second, all tasks.",
			perSecond, over(speed("attempts_total", "outcome"), "{{outcome}}")))).
		WithPanel(graph("So long jobs run", "The half and the 95th percentile, by task.",
			seconds, over(quantile(.5, "job_duration_seconds", "task"), "{{task}} p50"), over(quantile(.95, "job_duration_seconds", "task"), "{{task}} p95"))).
		WithPanel(graph("Jobs running now", "In all processes, by task.",
			count, over("sum by (task) ("+series("jobs_running")+")", "{{task}}")))
}

// queues are what asynq holds. A queue that is paused is drawn below zero, since what is
// pending there does not wait for workers.
func queues(b *dashboard.DashboardBuilder) {
	b.WithRow(row("Queues")).
		WithPanel(stacked(graph("Jobs in the queues", "All queues, by asynq's state. Jobs that wait for permits are among those in retry.",
			count, over("sum by (state) ("+told("queue_jobs", "queue, state")+")", "{{state}}")))).
		WithPanel(graph("A queue's first job has been pending", "If this grows the workers are too few: jobs wait for a worker, not for permits. A paused queue is at -1.",
			seconds, over(told("queue_latency_seconds", "queue"), "{{queue}}"), over("-1 * "+told("queue_paused", "queue")+" < 0", "{{queue}} is paused")).Min(-1)).
		WithPanel(graph("Archived jobs", "By queue. They will not run again unless somebody says so.",
			count, over(told("queue_jobs", "queue", `state="archived"`), "{{queue}}")))
}

// schedules are their ticks. All processes tell the same counters, so the fastest of them
// is taken and not their sum.
func schedules(b *dashboard.DashboardBuilder) {
	b.WithRow(row("Schedules")).
		WithPanel(graph("Ticks", "Of schedules, a second: enqueued, skipped (missed, or the job before was not done), failed.",
			perSecond, over("max by (schedule, outcome) (rate("+series("scope_schedule_ticks_total")+"[$__rate_interval]))", "{{schedule}} {{outcome}}")).Span(12)).
		WithPanel(graph("Ticks are late by", "For how long a tick has been due that nobody has enqueued.",
			seconds, over(told("schedule_late_seconds", "schedule"), "{{schedule}}")).Span(12))
}

// processes are what each does for the scope, and how it fares with Redis.
func processes(b *dashboard.DashboardBuilder) {
	each := func(metric string) string { return "max by (instance) (" + series(metric) + ")" }
	b.WithRow(row("Processes")).
		WithPanel(graph("Who gives turns", "The process that wakes waiting jobs is at 1: one of a scope.",
			count, over(each("dispatcher"), "{{instance}}")).Max(1)).
		WithPanel(graph("Giving turns takes", "How long a round of it takes.",
			seconds, over(quantile(.5, "turn_round_duration_seconds", ""), "p50"), over(quantile(.99, "turn_round_duration_seconds", ""), "p99"))).
		WithPanel(graph("Asking the limiter takes", "How long jobs' calls of the limiter take, Redis and the way to it.",
			seconds, over(quantile(.5, "limiter_call_duration_seconds", ""), "p50"), over(quantile(.99, "limiter_call_duration_seconds", ""), "p99"))).
		WithPanel(graph("Redis gave no answer", "Calls of the limiter, and summaries of the history, that failed, a second.",
			perSecond, over(speed("limiter_call_failures_total", "instance"), "{{instance}}: limiter"),
			over(speed("history_write_failures_total", "instance"), "{{instance}}: history"))).
		WithPanel(graph("What waits was counted before", "If this is above a minute the numbers of waiting jobs are old.",
			seconds, over(told("survey_age_seconds", ""), "counted"))).
		WithPanel(graph("The config was read before", "How long ago each process has read its config file without errors.",
			seconds, over("time() - "+each("config_last_reload_success_timestamp_seconds"), "{{instance}}"))).
		WithPanel(graph("What is wrong with Redis", "What processes find of a Redis that they use: nothing, if there is no line above 0.",
			count, over(each("redis_trouble"), "{{instance}}: {{trouble}}"))).
		WithPanel(graph("Workers", "Processes that run jobs. Those that are gone ended within the last hour without stopping as they should, or reach Redis no more.",
			count, over(told("workers", "state"), "{{state}}"))).
		WithPanel(graph("The config file is in force", "1 while it is; 0 where it has errors, and what was read before holds.",
			count, over(each("config_taken"), "{{instance}}")))
}
