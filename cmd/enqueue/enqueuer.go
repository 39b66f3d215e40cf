package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// line is a job to add: a line of the input, or a job that flags gave. If an error ended the input,
// the last line has only that error, in ended.
type line struct {
	number int    // from 1; 0 for a job that flags gave
	text   []byte // the line as read; nil for a job that flags gave
	wrong  error  // why a row of a CSV file is no job; nil for any other line
	ended  error

	jobspec.Checked
	unset string // see unsetBy
}

func (l line) where() string {
	if l.number == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", l.number)
}

// enqueuer checks jobs, adds or plans them, and reports what became of them. It connects to Redis
// when the first job is added.
type enqueuer struct {
	config   *config.Config
	defaults jobspec.Options
	stdio    cli.IO
	json     bool
	showIDs  bool
	single   bool   // the input is one job, which flags gave
	crawl    string // name of the crawl of the jobs, if any
	wait     bool   // wait for the batch of the defaults
	results  string // the file for the results of the batch, or ""

	rdb    redis.UniversalClient
	end    func() error
	client *scheduler.Client
	batch  []line // checked jobs that are not added yet

	added    int
	ids      []addedJob // the added jobs; filled only if report prints them
	again    int        // number of jobs that are in their batch already
	bad      int        // number of bad lines, or of bad jobs that flags gave
	existing int        // number of jobs that exist already
	unsaved  bool       // some of the added jobs are lost, because the embedded Redis could not save them
	inputErr error      // why the input ended early; nil if it did not

	batches  map[string]bool  // opened batches
	waited   *scheduler.Batch // the batch after its end, or nil
	reported bool

	warned map[string]bool // types that fill has warned about
	queues map[string]bool // queues of added jobs
	unkept map[string]bool // types of added jobs that have no retention for their answers
	// unset has the settings for which asynq's defaults apply, by the type of the added jobs.
	unset map[string]string
}

func newEnqueuer(conf *config.Config, defaults jobspec.Options, stdio cli.IO) *enqueuer {
	return &enqueuer{
		config: conf, defaults: defaults, stdio: stdio,
		batches: map[string]bool{}, warned: map[string]bool{}, queues: map[string]bool{}, unkept: map[string]bool{}, unset: map[string]string{},
	}
}

// addedJob is an added job. Line is 0 if flags gave the job.
type addedJob struct {
	Line int    `json:"line,omitempty"`
	ID   string `json:"id"`
}

// each calls do for each job that check accepts. It calls idle before it waits for a line.
func (e *enqueuer) each(ctx context.Context, lines <-chan line, do func(line) error, idle func() error) error {
	for more := true; more; {
		var err error
		if len(lines) == 0 {
			err = idle()
		}
		var l line
		select {
		case <-ctx.Done():
		case l, more = <-lines: // an interrupt also closes this channel
		}
		if err = cmp.Or(err, ctx.Err()); err == nil && more && e.check(&l) {
			err = do(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check parses a line and fills in the job. It rejects a job that has an error or could never run:
// it prints the error and returns false.
func (e *enqueuer) check(l *line) bool {
	if e.inputErr = l.ended; l.ended != nil {
		return false
	}
	err := e.fill(l)
	if err != nil {
		e.bad++
		e.reject(*l, err)
	}
	return err == nil
}

// fill parses a line, checks the job and fills it in. fill warns once of each type that no worker
// with this config can run.
func (e *enqueuer) fill(l *line) (err error) {
	switch {
	case l.wrong != nil:
		err = l.wrong
	case l.text != nil:
		l.Job, err = parse(l.text)
	default:
		err = l.Validate()
	}
	if err != nil {
		return err
	}
	l.unset = e.unsetBy(l.Job)
	if name := cmp.Or(l.Batch, e.defaults.Batch); name != "" && l.ID == "" && l.number > 0 {
		l.ID = fmt.Sprintf("%s/%d/%.4x", name, l.number, sha256.Sum256(slices.Concat(l.text, l.Payload))) // the same if the user runs the same command again
	}
	l.Checked, err = l.Check(e.defaults, e.config)
	if e.results != "" && l.Retention == 0 {
		l.Retention = asynqdb.EndedBatchTime
	}
	if l.Warning != "" && !e.warned[l.Type] {
		e.warned[l.Type] = true
		fmt.Fprintf(e.stdio.Err, "%s: %stype %q %s\n", cli.Enqueue, l.where(), l.Type, l.Warning)
	}
	return err
}

// parse parses a line, and adds an example to the error of a line that is no JSON.
func parse(text []byte) (jobspec.Job, error) {
	job, err := jobspec.Parse(text)
	if err == nil || json.Valid(text) || !utf8.Valid(text) {
		return job, err
	}
	hint := ""
	if text[0] != '{' && bytes.ContainsAny(text, ",;\t") {
		hint = "; a CSV file needs --csv"
	}
	return job, fmt.Errorf("%w: want one JSON object a line, such as %s%s", err, jobspec.Example, hint)
}

// unsetBy returns the settings of a job for which asynq's defaults apply, because neither the job
// nor a flag has them and the config has no entry for the job's type. It ignores types that no
// config can have.
func (e *enqueuer) unsetBy(j jobspec.Job) string {
	if _, known := e.config.Tasks[j.Type]; known || errors.Is(tasks.Validate(j.Type, nil), tasks.ErrUnknownType) {
		return ""
	}
	var unset []string
	if j.MaxRetry == nil && e.defaults.MaxRetry == nil {
		unset = append(unset, "max_retry (25)")
	}
	if j.Timeout == 0 && e.defaults.Timeout == 0 && j.Deadline.IsZero() && e.defaults.Deadline.IsZero() {
		unset = append(unset, "timeout (30 min)")
	}
	return strings.Join(unset, " and ")
}

// batchSize is the number of jobs that are added at once.
const batchSize = 64

// add adds jobs in batches while it reads lines. With strict it reads all lines first, and adds no
// job if a line is bad.
func (e *enqueuer) add(ctx context.Context, lines <-chan line, strict bool) error {
	send := func() error { return e.send(ctx) }
	idle := send
	if strict {
		idle = func() error { return nil }
	}
	err := e.each(ctx, lines, func(l line) error {
		if e.batch = append(e.batch, l); strict || len(e.batch) < batchSize {
			return nil
		}
		return send()
	}, idle)
	if strict && err == nil && e.bad == 0 && e.inputErr == nil {
		err = send()
	}
	err = e.closeBatches(ctx, err)
	if e.wait && err == nil && e.batches[e.defaults.Batch] {
		err = e.waitForBatch(ctx)
	}
	err = e.close(err)
	return cmp.Or(e.report(), err, e.verdict())
}

func (e *enqueuer) use(rdb redis.UniversalClient, end func() error) {
	e.rdb, e.end, e.client = rdb, end, e.config.NewClient(rdb)
}

// send adds all jobs of the batch, even after an error, and returns the first error.
func (e *enqueuer) send(ctx context.Context) (failed error) {
	if e.rdb == nil && len(e.batch) > 0 {
		rdb, end, err := e.config.Redis.ConnectOrCreate(ctx, func(string) {})
		if err != nil {
			return err
		}
		e.use(rdb, end)
		if text := e.config.Redis.LeftBehind(ctx); text != "" {
			fmt.Fprintln(e.stdio.Err, cli.Enqueue+": "+text)
		}
	}
	for batch := range slices.Chunk(e.batch, batchSize) {
		tasks := make([]*asynq.Task, len(batch))
		for i, l := range batch {
			tasks[i] = l.Task()
		}
		if err := e.openBatches(ctx, batch); err != nil {
			return err
		}
		for i, answer := range e.client.EnqueueAll(ctx, tasks...) {
			if err := e.enqueued(ctx, batch[i], answer.Err); err != nil {
				failed = cmp.Or(failed, ctx.Err(), err) // asynq's error hides an interrupt
			}
		}
	}
	e.batch = e.batch[:0]
	return e.nameRight(ctx, failed)
}

// nameRight returns err, or an error that names the missing right if err does not name it. Redis does
// not say which command of asynq's script it refused. So nameRight sends each command with arguments
// that change nothing. LPUSH has no such arguments: it is the missing right if no other is.
func (e *enqueuer) nameRight(ctx context.Context, err error) error {
	if err == nil || !strings.Contains(err.Error(), script.UnnamedCommand) {
		return err
	}
	for _, command := range []string{"exists KEY", "hset KEY a b c", "set KEY a b", "zadd KEY a b"} {
		var args []any
		for word := range strings.FieldsSeq(strings.Replace(command, "KEY", asynqdb.Key(asynqdb.CheckQueue, "check"), 1)) {
			args = append(args, word)
		}
		if named := e.rdb.Do(ctx, args...).Err(); redishealth.ProblemOf(named) == redishealth.NoRights {
			return named
		}
	}
	return fmt.Errorf("the Redis user %s may not run LPUSH: the user needs +lpush (NOPERM)", e.config.Redis.User())
}

// enqueued records what became of one job. err is nil if the job was added. If the job exists
// already, enqueued rejects it and returns nil. A job that is in its batch already is no mistake.
func (e *enqueuer) enqueued(ctx context.Context, l line, err error) error {
	if l.Batch != "" && errors.Is(err, asynq.ErrTaskIDConflict) && e.isInBatch(ctx, l) {
		e.again++
		return nil
	}
	switch exists, err := l.Added(err); {
	case exists:
		e.existing++
		e.reject(l, err)
	case err != nil:
		return fmt.Errorf("%s%w", l.where(), err)
	default:
		e.accept(l)
	}
	return nil
}

// accept records an added job. With --ids it prints the ID, or keeps it for the JSON object.
func (e *enqueuer) accept(l line) {
	e.added++
	if e.single || e.showIDs && e.json {
		e.ids = append(e.ids, addedJob{l.number, l.ID})
	}
	switch {
	case !e.showIDs || e.json:
	case l.number == 0:
		fmt.Fprintln(e.stdio.Out, cli.Line(l.ID))
	default:
		fmt.Fprintf(e.stdio.Out, "%d\t%s\n", l.number, cli.Line(l.ID))
	}
	e.queues[l.Queue] = true
	var call tasks.HTTPRequest
	if l.Retention == 0 && e.config.Tasks.LosesResponses(l.Type) && json.Unmarshal(l.Payload, &call) == nil && call.Save == "" {
		e.unkept[l.Type] = true
	}
	if l.unset != "" {
		e.unset[l.Type] = l.unset
	}
}

// maxShown is the maximum number of rejected jobs whose errors are printed.
const maxShown = 20

// reject prints why a job is not added. The caller counts the job.
func (e *enqueuer) reject(l line, err error) {
	switch n := e.bad + e.existing; {
	case n <= maxShown:
		fmt.Fprintf(e.stdio.Err, "%s: %s%s\n", cli.Enqueue, l.where(), cli.Line(err.Error()))
	case n == maxShown+1:
		fmt.Fprintln(e.stdio.Err, cli.Enqueue+": further errors are only counted")
	}
}

// warn warns of types whose answers are not kept, and of queues that no running worker serves. If
// no worker is running, it warns of queues that this config does not serve instead. It returns
// whether a worker is running. It ignores errors of Redis, because the jobs are already added.
func (e *enqueuer) warn() (running bool) {
	conf, stderr := e.config, e.stdio.Err
	for _, name := range slices.Sorted(maps.Keys(e.unkept)) {
		fmt.Fprintf(stderr, "%s: answers of %s are kept for \"%s results\" only if the worker's config has a retention for the task: use --retention 24h, or set retention: 24h there\n", cli.Enqueue, name, cli.Worker)
	}
	for _, name := range slices.Sorted(maps.Keys(e.unset)) {
		fmt.Fprintf(stderr, "%s: jobs of %s have asynq's default %s: the config here has no task %s, and the worker's config does not change that\n", cli.Enqueue, name, e.unset[name], name)
	}
	servers, err := asynq.NewInspectorFromRedisClient(e.rdb).Servers()
	if err != nil {
		return true
	}
	by, served := "no running worker takes", map[string]int{}
	for _, server := range servers {
		for queue, weight := range server.Queues {
			served[conf.Sharded.QueueOf(queue)] = weight
		}
	}
	if len(servers) == 0 {
		by, served = "a worker with this config would not take", conf.Queues.Weights()
	}
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(e.queues)), func(queue string) bool { return served[queue] > 0 })
	if len(left) > 0 {
		fmt.Fprintf(stderr, "%s: %s jobs of queue %s, only of %s: the jobs wait until a worker serves it\n",
			cli.Enqueue, by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
	}
	return len(servers) > 0
}

// close closes the connection, and the embedded Redis if this command runs it. err is the error
// that ends the command, or nil.
func (e *enqueuer) close(err error) error {
	if e.rdb == nil {
		return err
	}
	running := err != nil || e.added == 0 || e.wait || e.warn()
	redis := e.config.Redis
	if lost := e.end(); lost != nil && redis.IsZero() {
		e.unsaved = true
		return lost // the data was not saved: this matters more than err
	}
	if redis.IsZero() && !running {
		fmt.Fprintf(e.stdio.Err, "%s: no Redis is configured and no worker is running: the jobs wait in %s for the next \"%s run\"\n", cli.Enqueue, redis.Folder(), cli.Worker)
	}
	return err
}

// report prints how many jobs were added.
func (e *enqueuer) report() error {
	if e.reported {
		return nil
	}
	e.reported = true
	id, ids := "", e.ids
	if e.single && len(ids) == 1 {
		id = ids[0].ID
	}
	if e.json {
		if !e.showIDs {
			ids = nil
		}
		return cli.JSON(e.stdio.Out, struct {
			Enqueued int        `json:"enqueued"`
			There    int        `json:"there_already"`
			BadLines int        `json:"bad_lines"`
			Unsaved  bool       `json:"unsaved,omitempty"`
			ID       string     `json:"id,omitempty"`
			IDs      []addedJob `json:"ids,omitempty"`
			Crawl    string     `json:"crawl,omitempty"`

			Batch *scheduler.Batch `json:"batch,omitempty"`
		}{e.added, e.existing + e.again, e.bad, e.unsaved, id, ids, e.crawl, e.waited})
	}
	out, text := e.stdio.Out, "enqueued "
	if e.unsaved {
		text += "at most "
	}
	text += display.Count(e.added, "job")
	var others []string
	if e.again > 0 {
		others = append(others, fmt.Sprintf("%d already in the batch", e.again))
	}
	if e.existing > 0 {
		others = append(others, fmt.Sprintf("%d exist already", e.existing))
	}
	if e.bad > 0 {
		others = append(others, display.Count(e.bad, "bad line"))
	}
	if len(others) > 0 && !e.single && e.crawl == "" {
		text += " (" + strings.Join(others, ", ") + ")"
	}
	if e.showIDs {
		out = e.stdio.Err // standard output has the IDs alone
	} else if id != "" {
		text += ": " + cli.Line(id)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// verdict returns the error for the exit code: the input ended early, a line is bad or a job exists
// already. Otherwise it is nil.
func (e *enqueuer) verdict() error {
	switch {
	case e.inputErr != nil:
		return cli.Usagef("%w", e.inputErr)
	case e.bad > 0:
		return cli.BadInput
	case e.existing > 0:
		return cli.Failed
	}
	return nil
}
