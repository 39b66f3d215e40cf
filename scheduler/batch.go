package scheduler

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/throttle"
)

// Batch has the number of the jobs of a batch by how they have ended. A batch is a named set of jobs, in
// any queues of one Redis:
//
//	err := client.OpenBatch(ctx, "import-7", asynq.NewTask("mail", payload)) // enqueued when all have ended
//	…
//	info, err := client.EnqueueContext(ctx, task, scheduler.InBatch("import-7"))
//	…
//	err = client.CloseBatch(ctx, "import-7")
//
// A batch ends when it is closed and all its jobs have ended: completed, archived, or deleted. A
// retried, scheduled or waiting job has not ended. Each job counts once, also after crashes. Jobs that
// asynq's Inspector or a server without headgate has ended are counted within about a minute.
//
// Redis keeps an ended batch for 7 days, and an unfinished one for 90 days after its last job was
// added. Until then, nothing can be added to a batch that has ended.
type Batch struct {
	Name       string `json:"batch"`
	Jobs       int    `json:"jobs"` // so far
	Unfinished int    `json:"unfinished"`
	Completed  int    `json:"completed"`
	Failed     int    `json:"failed"`  // archived
	Deleted    int    `json:"deleted"` // by an operator, by ActionDrop, or lost
	// Closed is whether CloseBatch was called after the last OpenBatch and InBatch.
	Closed bool `json:"closed"`
	// Ended is when the batch was found to have ended, or zero. It stays if archived jobs run again.
	Ended time.Time `json:"ended,omitzero"`
}

// InBatch returns an option that adds a job to a batch, and opens the batch if it is not open. A name has
// 1 to 100 letters, digits, or _ . : -. NewTask and a Client's Enqueue take the option; asynq's own
// functions ignore it. A job of a group cannot be in a batch. A batch accepts the ID of each of its jobs
// once: for a further job with the ID in the queue, the error is asynq.ErrTaskIDConflict, even if the
// first one has ended.
//
// An empty name means the batch of the running job whose context EnqueueContext or EnqueueAll gets, or
// no batch if that job has none. The added job then belongs to the batch also if that is closed.
func InBatch(name string) asynq.Option { return headerOption{asynqdb.HeaderBatch, name} }

// batchOf returns the name of the batch to which a task is to be added, or "", and whether a job of the
// batch adds it. A header that another job had, and that a handler has copied, is ignored.
func batchOf(ctx context.Context, task *asynq.Task, opts []asynq.Option) (name string, inside bool) {
	name, ok := headersIn(opts)[asynqdb.HeaderBatch]
	if !ok {
		name, ok = task.Headers()[asynqdb.HeaderBatch]
	}
	a, running := ctx.Value(attemptKey{}).(*attempt)
	switch {
	case strings.Contains(name, "\n"):
		return "", false
	case ok && name == "" && running:
		return a.batch, true
	}
	return name, running && name == a.batch
}

var batchName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

func batchError(name, want string) error {
	return &throttle.FieldError{Field: "batch", Value: strconv.Quote(name), Want: want}
}

// OpenBatch opens a batch, or opens it again if it was closed and has not ended. If onDone is not nil, it
// is enqueued once when the batch has ended, with whatever outcome, by a server or by WaitBatch. It is not
// a job of the batch, and its options ProcessAt, ProcessIn, Unique and TaskID do not apply. Only a batch
// with an onDone needs the call, because InBatch opens a batch as well. The error for a batch that has
// ended, and for an invalid name, is a *throttle.FieldError.
func (c *Client) OpenBatch(ctx context.Context, name string, onDone *asynq.Task) error {
	if onDone == nil {
		return c.openBatch(ctx, name, "", false, nil, "")
	}
	queue, info, err := c.dryRun(onDone, nil)
	if err != nil {
		return fmt.Errorf("what follows batch %s: %w", name, err)
	}
	return c.openBatch(ctx, name, "", false, info.msg, queue)
}

func (c *Client) openBatch(ctx context.Context, name, queue string, inside bool, msg []byte, msgQueue string) error {
	if !batchName.MatchString(name) {
		return batchError(name, "want 1 to 100 letters, digits, or _ . : -")
	}
	err := c.db.OpenBatch(ctx, name, queue, inside, msg, msgQueue)
	if errors.Is(err, asynqdb.ErrBatchEnded) {
		err = batchError(name, "this batch has ended: want another name")
	}
	return err
}

// CloseBatch notes that no more jobs will be added to a batch, except by its own jobs. Call it after
// the last Enqueue of any client has returned. A closed batch can end. It is safe to repeat.
func (c *Client) CloseBatch(ctx context.Context, name string) error {
	c.joined.forget(name)
	err := c.db.CloseBatch(ctx, name)
	if err != nil {
		return fmt.Errorf("batch %q: %w", name, err)
	}
	if b, err := c.db.Batch(ctx, name); err == nil {
		_ = c.finishBatch(ctx, b) // its jobs may all have ended; if this fails, a server will do it
	}
	return nil
}

// Batch counts the jobs of a batch. It returns an error if there is no batch of that name: none was
// opened, its time is over, or Redis has lost it or jobs of it.
func (c *Client) Batch(ctx context.Context, name string) (Batch, error) {
	_, status, err := c.readBatch(ctx, name)
	return status, err
}

func (c *Client) readBatch(ctx context.Context, name string) (asynqdb.BatchRecord, Batch, error) {
	b, err := c.db.Batch(ctx, name)
	if err != nil {
		return b, Batch{}, fmt.Errorf("batch %q: %w", name, err)
	}
	n, err := c.db.CountBatch(ctx, b)
	if err != nil {
		return b, Batch{}, fmt.Errorf("batch %q: %w", name, err)
	}
	status := Batch{
		Name: name, Closed: b.Closed, Ended: b.Ended, Unfinished: int(n[asynqdb.BatchUnfinished]),
		Completed: int(n[asynqdb.BatchCompleted]), Failed: int(n[asynqdb.BatchFailed]), Deleted: int(n[asynqdb.BatchDeleted]),
	}
	status.Jobs = status.Unfinished + status.Completed + status.Failed + status.Deleted
	return b, status, nil
}

const (
	batchPoll      = time.Second     // between two reads of WaitBatch
	batchReconcile = 5 * time.Second // between two reconciliations of WaitBatch
)

// WaitBatch waits until a batch has ended and what follows it is enqueued, and returns the final counts.
// If archived jobs of an ended batch run again, it waits for them, too. It calls progress about once a
// second, if that is not nil. While Redis is unavailable, it goes on
// waiting. A batch that is not closed does not end. The error is that of Batch, or the context's.
func (c *Client) WaitBatch(ctx context.Context, name string, progress func(Batch)) (Batch, error) {
	reconciled := time.Now()
	for ; ; sleep(ctx, batchPoll) {
		b, status, err := c.readBatch(ctx, name)
		if err == nil && progress != nil {
			progress(status)
		}
		if err == nil && b.Closed && time.Since(reconciled) > batchReconcile {
			_ = c.db.ReconcileBatch(ctx, b) // a server will do it if this fails
			reconciled = time.Now()
		}
		if err == nil && !b.Done && status.Unfinished == 0 {
			_ = c.finishBatch(ctx, b)
		}
		problem := redishealth.ProblemOf(err)
		switch {
		case ctx.Err() != nil:
			return status, ctx.Err()
		case err != nil && (problem == redishealth.None || !problem.IsTemporary()), err == nil && b.Done && status.Unfinished == 0:
			return status, err
		}
	}
}

// finishBatch ends a batch if all its jobs have ended, and enqueues its follow-up. Several callers may
// do so at once, or die at any point: the batch accepts the follow-up's ID once.
func (c *Client) finishBatch(ctx context.Context, b asynqdb.BatchRecord) error {
	if b.Done {
		return c.db.DropBatch(ctx, b.Name)
	}
	ended, err := c.db.EndBatch(ctx, b)
	if err != nil || !ended {
		return err
	}
	if b.FollowUp != nil {
		m, err := asynqdb.ParseMessage(b.FollowUp)
		if err != nil {
			return fmt.Errorf("batch %s: its follow-up: %w", b.Name, err)
		}
		opts := []asynq.Option{
			asynq.Queue(b.FollowUpQueue), asynq.TaskID("batch/" + b.Name + "/" + b.Opened), asynq.MaxRetry(m.MaxRetry),
			asynq.Timeout(time.Duration(m.Timeout) * time.Second), asynq.Retention(time.Duration(m.Retention) * time.Second),
		}
		if m.Deadline > 0 {
			opts = append(opts, asynq.Deadline(time.Unix(m.Deadline, 0)))
		}
		member := batchMember{b.Name, asynqdb.BatchFollowUp}
		_, err = c.Client.EnqueueContext(context.WithValue(ctx, memberKey{}, member), m.Task, opts...)
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			return err
		}
	}
	return c.db.FinishBatch(ctx, b)
}

// batchMember is how the enqueued job belongs to a batch.
type batchMember struct {
	batch string
	state asynqdb.BatchState
}

type memberKey struct{} // the context key of a batchMember

// joinBatch registers the batch of a task, and returns what EnqueueContext needs to add the job to it.
// It adds the batch to the headers. If a job of the batch enqueues the task after Redis has lost the
// batch, the task has none.
func (c *Client) joinBatch(ctx context.Context, name string, inside bool, task *asynq.Task, opts []asynq.Option, headers map[string]string) (context.Context, []asynq.Option, error) {
	queue, info, err := c.dryRun(task, opts)
	if err != nil {
		return ctx, opts, err
	}
	if info.Group != "" {
		return ctx, opts, batchError(name, fmt.Sprintf("the job is in the group %q: want no batch, because asynq joins the jobs of a group", info.Group))
	}
	err = c.joined.do(fmt.Sprintf("%s\n%s\n%t", name, queue, inside), func() error {
		return c.openBatch(ctx, name, queue, inside, nil, "")
	})
	if inside && errors.Is(err, asynqdb.ErrNoBatch) {
		return ctx, opts, nil
	}
	headers[asynqdb.HeaderBatch] = asynqdb.JobHeaderValue(job{Queue: queue, ID: info.ID}, name)
	ctx = context.WithValue(ctx, memberKey{}, batchMember{name, asynqdb.BatchUnfinished})
	return ctx, append(opts[:len(opts):len(opts)], asynq.TaskID(info.ID)), err
}

// joinedBatches knows which batches and queues a client has registered lately. A client registers them
// each minute, so that a batch is kept while jobs are added.
type joinedBatches struct {
	until sync.Map // by batch, queue, and whether a job of the batch adds jobs
}

// do calls register unless that has succeeded for the key within the last minute.
func (j *joinedBatches) do(key string, register func() error) error {
	if until, ok := j.until.Load(key); ok && time.Now().Before(until.(time.Time)) {
		return nil
	}
	err := register()
	if err == nil {
		j.until.Store(key, time.Now().Add(time.Minute))
		j.forget("")
	}
	return err
}

// forget forgets the queues of a batch, and all that a minute has passed for.
func (j *joinedBatches) forget(name string) {
	j.until.Range(func(key, until any) bool {
		if strings.HasPrefix(key.(string), name+"\n") || time.Now().After(until.(time.Time)) {
			j.until.Delete(key)
		}
		return true
	})
}
