package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// overview says what waits, on which limit, since when, and whether that limit is
// full.
func overview() *dashboard.DashboardBuilder {
	b := board("headgate", "headgate: what waits, on which limit, since when",
		"The answer first: what waits, on which limit, since when, and is that limit really full? Then each limit, and how well waiting works.")
	answers(b)
	limits(b)
	decisions(b)
	promptness(b)
	return b
}

// answers are the first row, a fact each: what an operator asks who was just woken.
func answers(b *dashboard.DashboardBuilder) {
	b.WithPanel(named(answer("Most jobs wait for this limit",
		"The limit that most jobs wait for, and how many they are. A job that needs several limits counts for those at which jobs wait.",
		count, now("topk(1, "+told("waiting_jobs", "limit")+" > 0)", "{{limit}}"), 4, 1_000, 100_000)).NoValue("Nothing waits")).
		WithPanel(named(answer("One job has waited this long",
			"The limit whose first job has waited longest, and for how long.",
			seconds, now("topk(1, "+told("oldest_wait_seconds", "limit")+" > 0)", "{{limit}}"), 4, 15*60, 3600)).NoValue("Nothing waits")).
		WithPanel(named(answer("So full is the fullest that jobs wait for",
			"Permits taken of those that the limit can give at once, of the fullest limit that jobs wait for. If that is far below 100 % jobs wait although permits are there: see whether anybody gives turns, and whether something is shut.",
			ratio, now("topk(1, "+waits(filled())+")", "{{limit}}"), 4, 2, 3)).NoValue("Nothing waits")).
		WithPanel(answer("Somebody gives turns",
			"Whether any process wakes the jobs that wait. If nobody does they come by asynq's polls, late.",
			count, now(told("dispatcher_alive", ""), ""), 3, 2, 3).
			Mappings(words(map[string][2]string{"1": {"yes", "green"}, "0": {"NOBODY", "red"}})).NoValue("no worker tells")).
		WithPanel(answer("Shut: paused, blocked",
			"Limits that somebody has paused, and keys that are held shut because the other side said so.",
			count, now("sum("+told("paused", "limit")+") + sum("+told("blocked_keys", "limit")+")", ""), 3, 1, 100)).
		WithPanel(answer("Refused in 10 minutes",
			"Calls that had their permits and that the other side refused all the same, as with 429. Others may share the quota, or the limit is too wide.",
			count, now("sum("+grown("refused_calls_total", "limit", "10m")+")", ""), 3, 1, 10).Decimals(0).NoValue("0")).
		WithPanel(answer("Let through beyond a limit",
			"How far the fullest limit without keys is of what it may let through in ten minutes, by the workers' own counts. Above 100 % Redis has lost permits, or somebody has reset the limit.",
			ratio, now("max("+through()+")", ""), 3, 1, 1.05).NoValue("no such limit"))
}

// through is what all processes let through in 10 minutes, of what a limit without
// keys may: twice its capacity, for a window in which a fixed one begins anew, and
// what comes back meanwhile.
func through() string {
	allowed := "(2 * max by (limit) (max_over_time(" + series("scope_permits_capacity") + "[10m]))" +
		" + 600 * max by (limit) (max_over_time(" + series("scope_permits_per_second") + "[10m]) > 0))"
	return "(" + grown("unkeyed_permits_total", "limit", "10m") + " - " + grown("unkeyed_permits_returned_total", "limit", "10m") + ") / " + allowed
}

// limits are a table of all limits, and how each went on.
func limits(b *dashboard.DashboardBuilder) {
	b.WithRow(row("Each limit")).
		WithPanel(rows("Which limit do jobs wait for, since when, and is it full?",
			"One row for each limit, the one that most jobs wait for first. Taken and capacity are of the fullest of the keys that most jobs wait for.",
			map[string]string{"limit": "Limit"},
			column{"Jobs waiting", count, told("waiting_jobs", "limit")},
			column{"Keys waited for", count, told("waiting_keys", "limit")},
			column{"Oldest has waited", seconds, told("oldest_wait_seconds", "limit")},
			column{"Last runs in", seconds, told("last_run_seconds", "limit")},
			column{"Full", ratio, filled()},
			column{"Permits taken", count, told("permits_used", "limit")},
			column{"Capacity", count, told("permits_capacity", "limit")},
			column{"Permits a second, all keys", perSecond, speed("permits_total", "limit")},
			column{"A key gives a second", perSecond, told("permits_per_second", "limit")},
			column{"Paused", "bool_yes_no", told("paused", "limit")},
			column{"Keys blocked", count, told("blocked_keys", "limit")})).
		WithPanel(graph("So many jobs wait", "Jobs that wait for permits of a limit, as they were counted some seconds before.",
			count, over(told("waiting_jobs", "limit"), "{{limit}}"))).
		WithPanel(graph("For so long the first has waited", "How long the job that waits longest has waited.",
			seconds, over(told("oldest_wait_seconds", "limit"), "{{limit}}"))).
		WithPanel(graph("So full is the limit", "Permits taken of those that can be had at once, of the fullest key that was looked at. A limit that jobs wait for should be near 100 %.",
			ratio, over(filled(), "{{limit}}")).Max(1)).
		WithPanel(graph("Permits taken a second", "What all keys of a limit gave. The dashed lines are what one key, or the limit without keys, gives in the long run.",
			perSecond, over(speed("permits_total", "limit"), "{{limit}}"), over(told("permits_per_second", "limit")+" > 0", "{{limit}} gives a key")).
			OverrideByRegexp("/gives a key$/", dashed())).
		WithPanel(graph("Keys blocked, limits paused", "Keys that are held shut since the other side said so, or somebody did; and limits that are paused.",
			count, over(told("blocked_keys", "limit"), "{{limit}}: keys blocked"), over(told("paused", "limit")+" > 0", "{{limit}} is paused"))).
		WithPanel(graph("Calls refused in spite of their permits", "By 429 and the like, a second. One now and then is how an adapting limit learns.",
			perSecond, over(speed("refused_calls_total", "limit"), "{{limit}}")))
}

// dashed draws what is allowed apart from what is: a dashed line with nothing under it.
func dashed() []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{
		{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{6, 6}}},
		{Id: "custom.fillOpacity", Value: 0},
	}
}

// decisions are what the limiter said to jobs.
func decisions(b *dashboard.DashboardBuilder) {
	b.WithRow(row("What jobs were told")).
		WithPanel(stacked(graph("Answers to jobs", "The limiter's answers, a second: allowed, denied (wait), never, too late, no such limit.",
			perSecond, over(speed("decisions_total", "outcome"), "{{outcome}}")))).
		WithPanel(graph("A job is denied about once", "Denials for each job that was allowed. Above 1 something explains it: pauses, changes, crashes, busy workers.",
			count, over("sum("+speed("denials_per_job_sum", "")+") / sum("+speed("denials_per_job_count", "")+")", "denials a job"))).
		WithPanel(graph("Denied jobs were told to wait", "The half and the 95th percentile of what denied jobs were told, by limit.",
			seconds, over(quantile(.5, "retry_after_seconds", "limit"), "{{limit}} p50"), over(quantile(.95, "retry_after_seconds", "limit"), "{{limit}} p95")))
}

// promptness is how well the turns are given: permits should not lie idle.
func promptness(b *dashboard.DashboardBuilder) {
	b.WithRow(row("How promptly they start")).
		WithPanel(graph("From permit to start", "Of jobs that waited: how long after its permits were there a job started. Milliseconds, unless workers are all busy.",
			seconds, over(quantile(.5, "lateness_seconds", ""), "p50"), over(quantile(.99, "lateness_seconds", ""), "p99"))).
		WithPanel(graph("From first denial to start", "How long jobs that had to wait did.",
			seconds, over(quantile(.5, "wait_seconds", ""), "p50"), over(quantile(.95, "wait_seconds", ""), "p95"))).
		WithPanel(graph("Jobs that nobody called", "Jobs that had waited and came by asynq's own polls, or too late after their call, a second. It should be 0.",
			perSecond, over("sum("+speed("uncalled_jobs_total", "")+")", "not called")))
}
