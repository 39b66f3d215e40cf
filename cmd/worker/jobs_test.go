package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// allJobs is a Redis with a job of each state, whose ID is the state, and one more that waits.
type allJobs struct {
	t *testing.T
	*inspect.Queues
	url string
	rdb *redis.Client
}

func newAllJobs(t *testing.T) *allJobs {
	t.Helper()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(redistest.Patient(&redis.Options{Addr: m.Addr()}))
	t.Cleanup(func() { _ = rdb.Close() })
	w := &allJobs{t, nil, "redis://" + m.Addr(), rdb}
	conn := &connection{globals: &cli.Globals{Redis: w.url}}
	t.Cleanup(conn.close)
	q, err := conn.queues(t.Context())
	w.must(err)
	w.Queues = q
	for _, id := range []string{"pending", "scheduled", "retry", "archived", "active", "completed", "waiting", "behind"} {
		w.add(id, id)
	}
	w.must(q.Limiter.Set(t.Context(), throttle.Limit{Name: "slow", Kind: throttle.Concurrency, Capacity: 1}))
	for _, id := range []string{"first", "waiting", "behind"} {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}}
		_, err := q.Limiter.Acquire(t.Context(), job, throttle.Need{Limit: "slow", Key: "shop"})
		w.must(err)
	}
	return w
}

func (w *allJobs) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// add enqueues a job and brings it into a state.
func (w *allJobs) add(id, state string) {
	w.t.Helper()
	client := scheduler.NewClient(w.rdb)
	opts := []asynq.Option{asynq.TaskID(id)}
	if state == "scheduled" {
		opts = append(opts, asynq.ProcessIn(time.Hour))
	}
	_, err := client.Enqueue(asynq.NewTask("of:"+state, []byte(`{"is":"`+id+`"}`)), opts...)
	w.must(err)
	if state == "archived" {
		w.must(w.Inspector.ArchiveTask("default", id))
	} else {
		w.bring(id, state)
	}
}

// bring moves a pending job to another state, as asynq writes it.
func (w *allJobs) bring(id, state string) {
	w.t.Helper()
	key := func(name string) string { return asynqdb.Key("default", name) }
	ctx := w.t.Context()
	soon := redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id}
	switch state {
	case "active":
		w.must(w.rdb.LPush(ctx, key(state), id).Err())
		w.must(w.rdb.ZAdd(ctx, key(asynqdb.Lease), soon).Err())
		w.must(w.rdb.HDel(ctx, asynqdb.Hash("default", id), "pending_since").Err())
	case "retry", "completed":
		w.must(w.rdb.ZAdd(ctx, key(state), soon).Err())
	default:
		return
	}
	w.must(w.rdb.LRem(ctx, key(asynqdb.Pending), 0, id).Err())
	w.must(w.rdb.HSet(ctx, asynqdb.Hash("default", id), "state", state).Err())
}

// run runs "worker jobs …".
func (w *allJobs) run(args string) (code int, out, stderr string) {
	w.t.Helper()
	return w.worker("jobs " + args)
}

func (w *allJobs) worker(args string) (code int, out, stderr string) {
	w.t.Helper()
	o := command.Run(w.t.Context(), append(strings.Fields(args), "--redis", w.url)...)
	return o.Code, o.Out, o.Err
}

// ids returns the IDs that "jobs list" lists.
func (w *allJobs) ids(args string) string {
	w.t.Helper()
	code, out, stderr := w.run("list --json " + args)
	var jobs []struct{ ID string }
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || code != 0 {
		w.t.Fatalf("list %s: exit code %d: %v: %s", args, code, err, stderr)
	}
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return strings.Join(ids, " ")
}

// states returns the state of each job.
func (w *allJobs) states() string {
	w.t.Helper()
	var all []string
	for job, err := range w.List(w.t.Context(), inspect.Filter{}) {
		w.must(err)
		all = append(all, job.ID+"="+job.State)
	}
	return strings.Join(all, " ")
}

func TestJobsList_Filters(t *testing.T) {
	w := newAllJobs(t)
	long := time.Now().Add(-2 * time.Hour)
	w.must(w.rdb.HSet(t.Context(), asynqdb.Hash("default", "pending"), "pending_since", long.UnixNano()).Err())
	w.must(w.rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Archived), redis.Z{Score: float64(long.Unix()), Member: "archived"}).Err())
	for args, want := range map[string]string{
		"":                              "archived retry pending waiting behind active scheduled completed",
		"--state pending":               "pending",
		"--state waiting":               "waiting behind",
		"--state retry,archived":        "archived retry",
		"--state granted":               "",
		"--type of:scheduled":           "scheduled",
		"--limit slow":                  "waiting behind",
		"--key shop":                    "waiting behind",
		"--limit slow --key other":      "",
		"--state waiting --type of:x":   "",
		`--payload "is":"re`:            "retry",
		"--error denied":                "",
		"--older 1h":                    "archived pending",
		"--older 3h":                    "",
		"--older 1h --state archived":   "archived",
		"--queue default --type of:x":   "",
		"--max 2 --state retry,pending": "retry pending",
	} {
		if got := w.ids(args); got != want {
			t.Errorf("%q lists %q, want %q", args, got, want)
		}
	}
	code, out, stderr := w.run("list --max 3")
	if code != 0 || strings.Count(out, "\n") != 5 || stderr != "" || !strings.HasSuffix(out, "\nthere are more jobs: use a filter, or a larger --max\n") {
		t.Errorf("with --max 3: exit code %d, %s%s", code, out, stderr)
	}
	if _, out, _ = w.run("list --state waiting"); !strings.Contains(out, "waits for slow of shop") {
		t.Errorf("waiting jobs: %s", out)
	}
}

// Arguments that make no sense, and actions that cannot be done, are rejected and change nothing.
func TestUsageErrors(t *testing.T) {
	w := newAllJobs(t)
	before := w.states()
	for args, want := range map[string]string{
		"jobs list --state nope":                  "2 --state nope: want active, granted, waiting, pending, retry, scheduled, archived, completed",
		"jobs list --state failed":                "2 --state failed: want active, granted, waiting, pending, retry, scheduled, archived, completed; did you mean archived?",
		"jobs delete pending retry nope":          "1 job nope not found: it may have finished without retention, or been deleted; no job was deleted",
		"jobs list --limit slow --state archived": "2 --state archived: want waiting or granted: a limit and a key",
		"jobs list --limit none":                  "1 no such limit: none",
		"jobs list --queue none":                  "1 there is no queue none",
		"jobs list --max 0":                       "2 --max 0: want 1 at least",
		"jobs list --max -5":                      "2 --max -5: want 1 at least",
		"jobs list --older=-1h":                   "2 --older -1h: want a time up to now, such as 24h",
		"jobs list --older 1h --state scheduled":  "2 --older 1h: cannot be combined with the state scheduled",
		"jobs delete":                             "2 no jobs are selected: want IDs, a filter such as --queue NAME, or --all",
		"jobs delete pending --type x":            "2 IDs can be combined with --queue and --state only",
		"jobs delete --all":                       "2 the filter selects 7 jobs; add --yes to confirm",
		"jobs archive --all":                      "2 the filter selects 5 jobs; add --yes to confirm",
		"jobs run --all":                          "2 the filter selects 3 jobs; add --yes to confirm",
		"jobs delete --state active --yes":        "2 --state active: want granted, waiting, pending, retry, scheduled, archived, completed; this does not apply to a job that is active: it runs: cancel it first",
		"jobs run --limit slow --yes":             "2 --limit slow: a filter by limit or key selects waiting jobs, to which this does not apply: it waits for permits, and starts as soon as they are available",
		"jobs run retry waiting":                  "1 job waiting is waiting: it waits for permits, and starts as soon as they are available",
		"jobs run scheduled completed":            "1 job completed is completed: it is completed: enqueue a new job",
		"jobs run pending":                        "1 job pending is pending: it is in its queue already",
		"jobs run nope archived":                  "1 job nope not found",
		"jobs delete active":                      "1 job active is active: it runs: cancel it first",
		"jobs archive archived":                   "1 job archived is archived: it is in the archive already",
		"jobs cancel retry":                       "1 job retry is retry: it is not running: archive or delete it instead",
		"jobs delete retry --state archived":      "1 job retry is not archived but retry",
		"queues pause none":                       "1 there is no queue none",
		"queues resume default":                   "1 queue default is not paused",
		"queues delete none":                      "1 there is no queue none",
		"queues delete default":                   "1 queue default has 1 running: cancel them, or wait until they end",
		"queues delete default --force":           "1 queue default has 1 running",
	} {
		code, out, stderr := w.worker(args)
		if got := fmt.Sprint(code, strings.TrimPrefix(stderr, "worker:")); !strings.HasPrefix(got, want) || out != "" {
			t.Errorf("%q: %s%s; want %s", args, got, out, want)
		}
	}
	if after := w.states(); after != before {
		t.Errorf("the jobs were %s\nand are %s", before, after)
	}
	if code, _, _ := w.worker("queues pause default"); code != 0 {
		t.Errorf("pause: exit code %d", code)
	}
	if code, _, stderr := w.worker("queues pause default"); code != 1 || stderr != "worker: queue default is paused already\n" {
		t.Errorf("second pause: exit code %d: %s", code, stderr)
	}
}

// A job that has left the selected state in the meantime is skipped.
func TestJobs_SkipChangedJobs(t *testing.T) {
	for _, tt := range []struct {
		act    *inspect.Action
		from   string
		change func(w *allJobs)
		left   string
	}{
		{inspect.Delete, "archived", func(w *allJobs) { w.must(w.Inspector.RunTask("default", "archived")) }, "archived=pending"},
		{inspect.Delete, "retry", func(w *allJobs) { w.must(w.Inspector.ArchiveTask("default", "retry")) }, "retry=archived"},
		{inspect.Archive, "scheduled", func(w *allJobs) { w.must(w.Inspector.RunTask("default", "scheduled")) }, "scheduled=pending"},
		{inspect.Run, "retry", func(w *allJobs) {
			_, err := w.Limiter.Acquire(w.t.Context(), waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: "retry"}}, throttle.Need{Limit: "slow", Key: "shop"})
			w.must(err)
		}, "retry=waiting"},
		{inspect.Delete, "archived", func(w *allJobs) { w.must(w.Inspector.DeleteTask("default", "archived")) }, ""},
	} {
		w := newAllJobs(t)
		f := inspect.Filter{States: []string{tt.from}}
		c := jobsAction{filter: filter{State: f.States}, action: tt.act, text: "%s"}
		jobs, err := c.find(t.Context(), w.Queues, f)
		w.must(err)
		tt.change(w)
		var out bytes.Buffer
		w.must(c.apply(t.Context(), w.Queues, cli.IO{Out: &out}, f, jobs))
		if out.String() != "0 jobs; skipped 1 job that changed in the meantime\n" || tt.left != "" && !slices.Contains(strings.Fields(w.states()), tt.left) {
			t.Errorf("%s of %s prints %swant %s of %s", tt.act.Done, tt.from, &out, tt.left, w.states())
		}
		if changes, err := w.Limiter.Changes(t.Context(), 1); err != nil || len(changes) > 0 && changes[0].Jobs > 0 {
			t.Errorf("%s of %s is in the changelog: %+v, %v", tt.act.Done, tt.from, changes, err)
		}
	}
}

// The last attempts of a job are shown if one has failed, without asynq's words.
func TestJob_Attempts(t *testing.T) {
	w := newAllJobs(t)
	for _, a := range []asynqdb.Attempt{
		{At: time.Now(), Took: 1500 * time.Millisecond, Worker: "host:1", Error: "boom: skip retry for the task"}, {At: time.Now(), Error: "its lease ended"},
	} {
		w.must(asynqdb.New(w.rdb).NoteAttempt(t.Context(), "default", "retry", a))
	}
	_, out, _ := w.worker("job retry")
	if !strings.Contains(out, "failed: boom, after 1.5 s on host:1\n") || !strings.Contains(out, "failed: its lease ended\n") {
		t.Errorf("as text: %s", out)
	}
	if _, out, _ = w.worker("job retry --json"); !strings.Contains(out, `"took_s": 1.5`) || strings.Index(out, "its lease") > strings.Index(out, "boom") {
		t.Errorf("as JSON, the last first: %s", out)
	}
	if _, out, _ = w.worker("job pending"); strings.Contains(out, "attempt ") {
		t.Errorf("of one that has not failed: %s", out)
	}
}

// asynq cancels by ID alone, so jobs with the same ID in two queues are not canceled.
func TestJobsCancel_SameIDInTwoQueues(t *testing.T) {
	w := newAllJobs(t)
	client := scheduler.NewClient(w.rdb)
	_, err := client.Enqueue(asynq.NewTask("of:active", nil), asynq.TaskID("active"), asynq.Queue("other"))
	w.must(err)
	messages := w.rdb.Subscribe(t.Context(), "asynq:cancel")
	defer messages.Close()
	_, err = messages.Receive(t.Context())
	w.must(err)
	if code, out, stderr := w.run("cancel active --queue default"); code != 0 || out != "canceled the context of 1 job; a handler stops when it reacts\n" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	if message, err := messages.ReceiveMessage(t.Context()); err != nil || message.Payload != "active" {
		t.Errorf("the workers got %v, %v", message, err)
	}
	w.must(w.rdb.LMove(t.Context(), asynqdb.Key("other", asynqdb.Pending), asynqdb.Key("other", asynqdb.Active), "RIGHT", "LEFT").Err())
	w.must(w.rdb.HSet(t.Context(), asynqdb.Hash("other", "active"), "state", "active").Err())
	for _, args := range []string{"cancel active --queue default", "cancel --queue other"} {
		code, _, stderr := w.run(args)
		if want := "worker: jobs active run in the queues default and other: canceling one would cancel all, so none was canceled\n"; code != 1 || stderr != want {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}

// A deleted queue leaves no job, lock, position or pause.
func TestQueuesDelete(t *testing.T) {
	w := newAllJobs(t)
	w.must(w.rdb.Del(t.Context(), asynqdb.Key("default", asynqdb.Active), asynqdb.Hash("default", "active")).Err())
	_, err := scheduler.NewClient(w.rdb).Enqueue(asynq.NewTask("once", nil), asynq.Unique(1e12))
	w.must(err)
	w.must(w.Inspector.PauseQueue("default"))
	code, _, stderr := w.worker("queues delete default")
	if code != 2 || stderr != "worker: queue default has 8 jobs, which are deleted with it; add --force to confirm\n" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, out, stderr := w.worker("queues delete default --force")
	if code != 0 || out != "deleted queue default, and 8 jobs\n" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	left, err := w.rdb.Keys(t.Context(), asynqdb.Key("default", "[tup]*")).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range left {
		if !strings.HasPrefix(key, asynqdb.Key("default", "processed")) {
			t.Errorf("there is %s still", key)
		}
	}
	_, waits, err := w.Limiter.Position(t.Context(), throttle.JobID{Queue: "default", ID: "waiting"})
	if waits || err != nil {
		t.Errorf("a deleted job waits: %v, %v", waits, err)
	}
}
