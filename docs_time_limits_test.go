package headgate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// TestOperating_TimeLimits: the page has each fixed time limit of the product, with the values of the
// constants. A new constant of time belongs to a row of timeLimits or to notLimits. With -update the
// test writes the table.
func TestOperating_TimeLimits(t *testing.T) {
	constants, anonymous := timeConstants(t)
	for _, place := range anonymous {
		t.Errorf("%s: want a named constant as the time limit", place)
	}
	explained := map[string]bool{}
	for _, row := range timeLimits {
		for name := range strings.FieldsSeq(row.constants) {
			explained[name] = true
		}
	}
	for name := range strings.FieldsSeq(notLimits) {
		if explained[name] {
			t.Errorf("%s is both in timeLimits and in notLimits", name)
		}
		explained[name] = true
	}
	for name, value := range constants {
		if !explained[name] {
			t.Errorf("%s = %s is new: want it in a row of timeLimits, or in notLimits if nothing ends or fails by it", name, value)
		}
	}
	for name := range explained {
		if _, ok := constants[name]; !ok {
			t.Errorf("timeLimits or notLimits has %s, which no code has", name)
		}
	}
	if t.Failed() {
		return
	}
	var table strings.Builder
	table.WriteString("| what waits | how long | what happens then | what you see |\n|---|---|---|---|\n")
	for _, row := range timeLimits {
		var values []string
		for name := range strings.FieldsSeq(row.constants) {
			if text := duration.Text(constants[name]); !slices.Contains(values, text) {
				values = append(values, text)
			}
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", row.waits, strings.Join(values, ", "), row.then, row.sees)
	}
	if len(timeLimits) > 45 {
		t.Errorf("%d rows are too many to read: want rows for limits of one kind", len(timeLimits))
	}
	const begin, end = "<!-- time limits: go test -run TimeLimits . -update writes this table -->\n\n", "\n## "
	page := proctest.ReadFile(t, operatingPage)
	before, rest, ok := strings.Cut(page, begin)
	i := strings.Index(rest, end)
	if !ok || i < 0 {
		t.Fatalf("%s has no %q", operatingPage, begin)
	}
	if want := before + begin + table.String() + rest[i:]; want == page {
		return
	} else if !*update {
		t.Errorf("the table of time limits in %s is not that of the constants: run go test -run TimeLimits . -update", operatingPage)
	} else if err := os.WriteFile(operatingPage, []byte(want), 0o644); err != nil {
		t.Error(err)
	}
}

// timeExprs has the values of the constants and variables of each package, by package and name.
type timeExprs map[string]map[string]ast.Expr

// timeConstants returns the constants of time in the product by their package's path and name, and the
// places of time limits that are no constants.
func timeConstants(t *testing.T) (constants map[string]time.Duration, anonymous []string) {
	t.Helper()
	all := timeExprs{}
	for _, path := range files(t, isSource) {
		folder := filepath.ToSlash(filepath.Dir(path))
		if strings.Contains(folder, "testutil") || strings.HasSuffix(folder, "test") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if all[folder] == nil {
			all[folder] = map[string]ast.Expr{}
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						all[folder][name.Name] = n.Values[i]
					}
				}
			default:
				for _, limit := range limitsIn(n) {
					if hasUnit(limit) {
						anonymous = append(anonymous, set.Position(limit.Pos()).String())
					}
				}
			}
			return true
		})
	}
	constants = map[string]time.Duration{}
	for folder, names := range all {
		for name, expr := range names {
			if value, isTime := all.eval(folder, expr, 0); isTime && value != 0 {
				constants[folder+"."+name] = time.Duration(value)
			}
		}
	}
	return constants, anonymous
}

// limitsIn returns the expressions in a node that say how long something waits at most.
func limitsIn(node ast.Node) (limits []ast.Expr) {
	switch n := node.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"WithTimeout", "WithTimeoutCause", "WithDeadline", "AfterFunc", "After", "NewTimer"}, f.Sel.Name) {
			limits = n.Args
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (strings.HasSuffix(key.Name, "Timeout") && key.Name != "ShutdownTimeout" || key.Name == "WaitDelay") {
			limits = []ast.Expr{n.Value}
		}
	case *ast.AssignStmt:
		if field, ok := n.Lhs[0].(*ast.SelectorExpr); ok && (strings.HasSuffix(field.Sel.Name, "Timeout") || field.Sel.Name == "WaitDelay") {
			limits = n.Rhs
		}
	}
	return limits
}

// hasUnit reports whether an expression names a unit of package time outside of functions.
func hasUnit(expr ast.Expr) (found bool) {
	ast.Inspect(expr, func(node ast.Node) bool {
		if _, ok := node.(*ast.FuncLit); ok {
			return false
		}
		if selector, ok := node.(*ast.SelectorExpr); ok {
			_, unit := unitOf(selector)
			found = found || unit
		}
		return true
	})
	return found
}

func unitOf(s *ast.SelectorExpr) (ns float64, ok bool) {
	if p, isName := s.X.(*ast.Ident); !isName || p.Name != "time" {
		return 0, false
	}
	units := map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	unit, ok := units[s.Sel.Name]
	return float64(unit), ok
}

// eval returns the value of a constant expression in a package, and whether it is a time. The value is
// 0 if eval cannot tell it. depth bounds references of names to each other.
func (all timeExprs) eval(folder string, expr ast.Expr, depth int) (value float64, isTime bool) {
	if depth > 10 {
		return 0, false
	}
	switch e := expr.(type) {
	case *ast.BasicLit:
		value, _ = strconv.ParseFloat(strings.ReplaceAll(e.Value, "_", ""), 64)
	case *ast.ParenExpr:
		return all.eval(folder, e.X, depth+1)
	case *ast.Ident:
		if named := all[folder][e.Name]; named != nil {
			return all.eval(folder, named, depth+1)
		}
	case *ast.SelectorExpr:
		if value, isTime = unitOf(e); isTime {
			return value, true
		}
		for other, names := range all {
			if p, ok := e.X.(*ast.Ident); ok && filepath.Base(other) == p.Name && names[e.Sel.Name] != nil {
				return all.eval(other, names[e.Sel.Name], depth+1)
			}
		}
	case *ast.BinaryExpr:
		x, xTime := all.eval(folder, e.X, depth+1)
		y, yTime := all.eval(folder, e.Y, depth+1)
		switch isTime = xTime != yTime; e.Op {
		case token.MUL:
			value = x * y
		case token.QUO:
			if y != 0 {
				value = x / y
			}
		case token.ADD, token.SUB:
			if isTime = xTime && yTime; e.Op == token.SUB {
				y = -y
			}
			value = x + y
		default:
			isTime = false
		}
	}
	return value, isTime
}

// timeLimits are the rows of the table: what waits, for the time of the constants, what happens then,
// and what a user sees.
var timeLimits = []struct{ waits, constants, then, sees string }{
	{
		"A program's or worker's calls to Redis, before Redis counts as away",
		"internal/redishealth.AnswerTimeout",
		"jobs wait",
		"Redis cannot be used: jobs wait",
	},
	{
		"A call to Redis, before the worker asks whether Redis answers at all",
		"internal/redishealth.slowCall",
		"one more command is sent",
		"nothing",
	},
	{
		"A connection to Redis, for an answer, if the URL has no `read_timeout`",
		"cmd/internal/config.readTimeout",
		"the client sends the call again, ten times at most",
		"nothing",
	},
	{
		"A command or a request of the API, for Redis",
		"cmd/internal/config.reachTimeout cmd/internal/api.redisTimeout cmd/internal/config.refusedTimeout",
		"it ends; the shorter time counts for commands, while connections are refused",
		"cannot reach Redis, exit code 1; status 503",
	},
	{
		"A command without an answer of Redis",
		"cmd/worker.noticeAfter",
		"it goes on waiting",
		"waiting for Redis",
	},
	{
		"The worker's clock, beside Redis's",
		"cmd/internal/worker.maxSkew",
		"nothing",
		"a warning of `run --check`",
	},
	{
		"`/readyz`, for a check of Redis",
		"cmd/internal/worker.readyTimeout",
		"it answers by the last known state",
		"red only if Redis counts as away",
	},
	{
		"`headgate-worker health`, for the worker",
		"cmd/worker.healthTimeout",
		"it ends",
		"exit code 1",
	},
	{
		"A scrape, for Redis",
		"dashboards/metrics.healthTimeout dashboards/metrics.readTimeout",
		"it has the last metrics, if they are new enough; after the longer time the read ends",
		"`headgate_scope_up` 0 if Redis counts as away",
	},
	{
		"The page, for Redis",
		"dashboards/page.slowRead dashboards/page.readTimeout",
		"it shows what it knew last: after the shorter time if that is new enough",
		"that the page could not be read, or that Redis does not answer",
	},
	{
		"A client of the page, to send a request; the page, to answer it, and a client of the API, to send jobs; a connection without a request",
		"cmd/internal/worker.requestTimeout cmd/internal/worker.answerTimeout cmd/internal/api.sendTimeout cmd/internal/worker.idleTimeout",
		"the connection is closed",
		"the client has an error",
	},
	{
		"Running jobs of a worker that stops",
		"scheduler.shutdownTimeout",
		"they go back to their queue (`shutdown_timeout`)",
		"the jobs run elsewhere",
	},
	{
		"A shutdown, for Redis, after that",
		"scheduler.finishTime",
		"it ends; jobs that could not go back run again when their leases have ended",
		"jobs run half a minute later",
	},
	{
		"A worker that stops, for commands of jobs and calls, after `shutdown_timeout`",
		"cmd/internal/worker.endTime",
		"it ends without them",
		"stopped, although …",
	},
	{
		"Requests to the page when the worker stops; the connections to Redis",
		"cmd/internal/worker.closeTimeout cmd/internal/config.closeTime",
		"they are cut",
		"an error of the client",
	},
	{
		"A command after a signal, or a worker after `shutdown_timeout`",
		"cmd/internal/cli.stopTime cmd/internal/cli.sayTime",
		"the process ends",
		"interrupted before everything had ended, exit code 1",
	},
	{
		"The export of traces; the last one when a command ends",
		"cmd/internal/cli.exportTimeout cmd/internal/cli.flushTimeout",
		"the spans are lost",
		"cannot export traces",
	},
	{
		"The embedded Redis: its answer, and its end; the count of what it holds, for a config with a Redis",
		"cmd/internal/embedded.answerTimeout cmd/internal/config.countTimeout",
		"the command ends; a redis-server that does not end is killed; the warning has no count",
		"process N runs the Redis, which does not answer",
	},
	{
		"The demo, besides three times what its calls need",
		"cmd/worker.demoTimeout",
		"it ends",
		"only N of M calls",
	},
	{
		"The rules of jobs that were fetched together",
		"scheduler.ruleTimeout",
		"slower ones ask for permits in a later call",
		"nothing",
	},
	{
		"`RuleFor` of a job without Timeout and Deadline",
		"scheduler.asynqDefaultTimeout",
		"the job fails",
		"RuleFor has not returned",
	},
	{
		"A job, for a worker that can run it",
		"scheduler.DefaultUnknownFor",
		"the attempt fails (`unknown_for`)",
		"jobs wait for a worker that can run them",
	},
	{
		"`RuleFor` of a waiting job; rules for the backlog's sample; rules for turns of pending jobs",
		"scheduler.waitingRuleTime internal/stats.rulesTimeout scheduler.keyTime",
		"the job keeps its limits; the sample counts it without; it has no fairness key",
		"nothing",
	},
	{
		"A function of the asynq config or of a schedule",
		"scheduler.maxCall scheduler/cron.maxCall",
		"the server does without its result; a tick fails",
		"an error in the log or of the tick",
	},
	{
		"A `GroupAggregator`",
		"scheduler.maxAggregation",
		"asynq keeps the group and tries again",
		"nothing",
	},
	{
		"From a handler's return to asynq's record of it",
		"scheduler.maxEnd",
		"the attempt ends as failed",
		"the job's last error",
	},
	{
		"The program's log handler",
		"internal/safelog.hangTime",
		"lines are lost until it returns",
		"missing lines",
	},
	{
		"A fetched job, for a worker slot; for the end of an earlier attempt",
		"scheduler.startWithin scheduler.endingTime",
		"it goes back to the head of its queue; to its queue for a second",
		"nothing",
	},
	{
		"A fetched job, for the limiter, while jobs are denied",
		"scheduler.admitTime",
		"it waits in a worker slot instead",
		"nothing",
	},
	{
		"Permits that exist, for the start of their job: of windows, of other kinds",
		"internal/waitdb.MaxWindowAge scheduler.maxPermitAge",
		"the job gives them back and asks again; if no job of a window starts in time, the first time doubles up to the second",
		"jobs of windows start late; a job's permits expire before it starts, at the third time",
	},
	{
		"The permits of a granted job",
		"internal/waitdb.DefaultGrant scheduler.minGrantTime",
		"they go to the next job of the lane",
		"`headgate_ungranted_jobs_total`, if the job comes later",
	},
	{
		"Reports to the limiter after a handler; the names in a warning of a missing limit; a crawl's note of a failed page",
		"scheduler.reportTimeout scheduler.missingTimeout tasks.failedTimeout",
		"the report or the names are missing",
		"could not tell the limiter …, could not tell the crawl …",
	},
	{
		"Reports between worker and leader; a leader that steps down; writes of stats",
		"scheduler.slotsTimeout internal/dispatcher.stepDownTimeout internal/stats.callTimeout",
		"the next one comes; another leads when the lease has ended; counts are lost",
		"a gap of seconds in charts",
	},
	{
		"The leader, for Redis, besides the time between two renewals",
		"internal/dispatcher.LeaseMargin",
		"another worker leads",
		"nothing",
	},
	{
		"A worker, for its next sign of life",
		"internal/stats.lostAfter",
		"it counts as lost",
		"lost in `headgate-worker status`, until it is back",
	},
	{
		"The lease of an active job, which its worker extends; what asynq waits after it",
		"internal/asynqdb.LeaseTime scheduler.recovererDelay",
		"another worker runs the job",
		"the attempts of `headgate-worker job ID`",
	},
	{
		"The rest of a lease, for a fetched job to start",
		"scheduler.minLease",
		"it goes back to its queue",
		"nothing",
	},
	{
		"The lease on a concurrency limit, and what its handler has left to end",
		"internal/meter.DefaultLease scheduler.maxMargin",
		"the handler is canceled",
		"a job lost its lease and is canceled",
	},
	{
		"The claim of a scope by its asynq Redis",
		"scheduler.claimTTL",
		"another Redis may use the scope",
		"nothing",
	},
	{
		"A tick, for a worker",
		"scheduler/cron.missedAfter",
		"it counts as missed (`missed`)",
		"skipped missed ticks of a schedule",
	},
	{
		"A call of `http:request`; a command of `exec`",
		"tasks.DefaultTimeout tasks.DefaultCommandTimeout",
		"the attempt fails (`timeout`)",
		"no complete response within …, no end within …",
	},
	{
		"A connection to an upstream: dial, TLS, 100-continue, idle",
		"tasks.dialTimeout tasks.tlsTimeout tasks.expectTimeout tasks.idleTimeout",
		"the attempt fails; an idle one is closed",
		"the job's last error",
	},
	{
		"The output of a command that has ended",
		"tasks.outputTimeout",
		"what came until then is the result",
		"nothing",
	},
	{
		"The result of a call, for Redis",
		"tasks.storeTimeout",
		"the job fails",
		"cannot store the result",
	},
	{
		"The request of a robots.txt by one job; jobs whose robots.txt cannot be read",
		"internal/frontier.robotsTimeout tasks.robotsMaxWait",
		"another job requests it; the jobs are archived",
		"the job's last error",
	},
}

// notLimits are constants of time by which nothing ends or fails: pauses, intervals, windows, ages of
// what is kept, and units.
const notLimits = `
cmd/internal/api.retryAfter cmd/internal/config.clusterReloadInterval cmd/internal/config.maxRetryBackoff cmd/internal/config.meterKept cmd/internal/config.pingInterval
cmd/internal/embedded.checkInterval cmd/internal/embedded.pingInterval cmd/internal/reaper.searchInterval
cmd/internal/worker.awaitInterval cmd/internal/worker.checkInterval cmd/internal/worker.readInterval
cmd/internal/worker.refusalWindow cmd/internal/worker.thenRetention cmd/worker.demoInterval cmd/worker.drainPause
dashboards/page.chartStep dashboards/page.cookieLifetime dashboards/page.minAge
internal/asynqdb.ArchiveTime internal/asynqdb.BatchTime internal/asynqdb.EndedBatchTime internal/asynqdb.LockMargin internal/asynqdb.WalkInterval internal/asynqdb.askTime internal/asynqdb.completedKept
internal/dispatcher.DefaultMaxHeartbeat internal/dispatcher.DefaultReconcileInterval internal/dispatcher.ErrorPause
internal/dispatcher.MaxSpreadHeartbeat internal/dispatcher.extendBefore internal/dispatcher.extendInterval
internal/dispatcher.grantInterval internal/dispatcher.heartbeat internal/dispatcher.idleExtendInterval
internal/dispatcher.missingInterval internal/dispatcher.roundInterval internal/dispatcher.slotsInterval
internal/dispatcher.busyTime internal/dispatcher.handoverTime internal/dispatcher.takeoverLease
internal/dispatcher.takeoverSpread internal/dispatcher.wokenLease internal/dispatcher.workFor internal/duration.day
internal/frontier.crawlTTL internal/frontier.robotsForget internal/frontier.robotsTTL internal/inspect.rateWindow
internal/inspect.shortWait internal/meter.day internal/meter.month internal/meter.week
internal/redishealth.checkInterval internal/redishealth.repeatPause internal/redishealth.settleTime internal/script.intervalLength
internal/stats.aliveInterval internal/stats.meanWindow internal/stats.lostRetention internal/stats.sampleInterval
internal/stats.sampleLifetime internal/stats.streamLength internal/stats.writeInterval
internal/waitdb.Advance internal/waitdb.maxBlock
scheduler.archiveInterval scheduler.claimInterval scheduler.delayedTaskCheckInterval scheduler.deniedWindow scheduler.emptyQueuePause scheduler.fastReply
scheduler.heartbeat scheduler.lateLease scheduler.maxCountPeriod scheduler.maxErrorPause scheduler.maxPoll scheduler.maxRest scheduler.maxUnablePause scheduler.minUnablePause scheduler.warnInterval
scheduler.maxLook scheduler.minPoll scheduler.noPause scheduler.orderAlone scheduler.orderInterval scheduler.orderPause scheduler.unknownLimitPause scheduler.promotePause scheduler.reportPeriod scheduler.restoreFor scheduler.slowTime scheduler.stuckAfter
scheduler.maxEarly scheduler.spreadTime scheduler.busyPause scheduler.foreignInterval scheduler.goodbyeTime scheduler.maxRestoreRest scheduler/cron.day scheduler/cron.minRetention scheduler/cron.retryEvery scheduler/cron.syncEvery
tasks.UnfinishedLifetime tasks.longestWait tasks.maxPutBack tasks.robotsMaxHold tasks.robotsMinHold tasks/internal/robots.maxDelay
throttle.Day throttle.Month throttle.Week throttle.maxFill throttle.maxHold
scheduler.batchInterval scheduler.batchPause scheduler.batchPoll scheduler.batchReconcile
`
