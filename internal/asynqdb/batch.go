package asynqdb

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// BatchState is the state of a job in its batch. A batch has a zset in each of its queues, with the
// IDs of the batch's jobs there by state. Scripts of that queue add a job and note its end, so each
// job counts once, whatever crashes. Members stay until the batch is forgotten.
type BatchState int

// The states of a job in its batch.
const (
	BatchUnfinished BatchState = iota
	BatchCompleted
	BatchFailed // archived
	BatchDeleted
	BatchFollowUp // the batch's follow-up, which does not count
)

const (
	// BatchTime is how long an unfinished batch is kept after its last job was added.
	BatchTime = 90 * 24 * time.Hour
	// EndedBatchTime is how long a batch is kept after its end.
	EndedBatchTime = 7 * 24 * time.Hour
	// batches is the key of the set of batches that are not done.
	batches = "asynq:headgate_batches"
	// batchesLook is the key of a string that exists for some time after LookAtBatches.
	batchesLook = "asynq:headgate_batches_look"
)

// batchPage is how many jobs one script of ReconcileBatch looks at.
const batchPage = 1000

// batchHash returns the key of a batch's hash. Its slot differs from those of the queues.
func batchHash(name string) string { return "asynq:headgate_batch:{" + name + "}" }

func batchKey(queue, name string) string { return Key(queue, Batches) + name }

// Errors of batches. Like ErrNotActive they are no sign that Redis cannot be used.
var (
	ErrNoBatch    error = scriptError("there is no such batch: it may have ended more than 7 days ago, or Redis has lost it")
	ErrBatchEnded error = scriptError("the batch has ended")
	ErrBatchLost  error = scriptError("Redis has lost jobs of the batch")
)

// A BatchRecord is the hash of a batch.
type BatchRecord struct {
	Name          string
	Opened        string // Unix ms; tells batches of one name apart
	Closed        bool
	Ended         time.Time // zero before the end
	Done          bool      // whether the follow-up was enqueued after the end, or there is none
	FollowUp      []byte    // encoded message; nil if there is none
	FollowUpQueue string

	version string
	queues  map[string]int64 // how many jobs a queue had at least when the batch was closed
}

var batchOpenScript = script.New("asynq/batch_open")

// OpenBatch opens a batch and registers a queue for its jobs, which may be empty. With inside, a job
// of the batch adds jobs: a closed batch stays closed then. If msg is not nil, it is the follow-up.
func (db DB) OpenBatch(ctx context.Context, name, queue string, inside bool, msg []byte, msgQueue string) error {
	args := []any{queue, time.Now().UnixMilli(), int(BatchTime / time.Second), inside, msg, msgQueue}
	state, err := batchOpenScript.Run(ctx, db.Redis, []string{batchHash(name)}, args...).Text()
	switch state {
	case "ended":
		err = ErrBatchEnded
	case "missing":
		err = ErrNoBatch
	case "open":
		err = db.Redis.SAdd(ctx, batches, name).Err()
	}
	return err
}

// Batch reads the hash of a batch.
func (db DB) Batch(ctx context.Context, name string) (BatchRecord, error) {
	fields, err := db.Redis.HGetAll(ctx, batchHash(name)).Result()
	if err == nil && len(fields) == 0 {
		err = ErrNoBatch
	}
	b := BatchRecord{Name: name, Opened: fields["opened"], FollowUpQueue: fields["follow_up_queue"], version: fields["version"], queues: map[string]int64{}}
	if msg, ok := fields["follow_up"]; ok {
		b.FollowUp, b.queues[b.FollowUpQueue] = []byte(msg), 0
	}
	_, b.Closed = fields["closed"]
	_, b.Done = fields["done"]
	if ms, err := strconv.ParseInt(fields["ended"], 10, 64); err == nil {
		b.Ended = time.UnixMilli(ms)
	}
	for field, text := range fields {
		if queue, ok := strings.CutPrefix(field, "queue:"); ok {
			b.queues[queue], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	return b, err
}

// CountBatch returns how many jobs of the batch are in each state, and ErrBatchLost if there are
// fewer than before.
func (db DB) CountBatch(ctx context.Context, b BatchRecord) (counts [BatchFollowUp]int64, err error) {
	counted := map[string][]*redis.IntCmd{} // by state
	_, err = db.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for queue := range b.queues {
			for state := range counts {
				score := strconv.Itoa(state)
				counted[queue] = append(counted[queue], p.ZCount(ctx, batchKey(queue, b.Name), score, score))
			}
		}
		return nil
	})
	for queue, states := range counted {
		sum := int64(0)
		for state, n := range states {
			counts[state] += n.Val()
			sum += n.Val()
		}
		if err == nil && sum < b.queues[queue] {
			err = ErrBatchLost
		}
	}
	return counts, err
}

// MayHaveEnded reports whether all jobs of the batch in a queue have ended.
func (db DB) MayHaveEnded(ctx context.Context, name, queue string) (bool, error) {
	n, err := db.Redis.ZCount(ctx, batchKey(queue, name), "0", "0").Result()
	return err == nil && n == 0, err
}

var batchSetScript = script.New("asynq/batch_set")

// set sets fields of the batch's hash. It returns false if something was added since b was read.
func (db DB) set(ctx context.Context, b BatchRecord, kept time.Duration, fields ...any) (bool, error) {
	args := append([]any{b.version, int(kept / time.Second)}, fields...)
	return batchSetScript.Run(ctx, db.Redis, []string{batchHash(b.Name)}, args...).Bool()
}

// CloseBatch notes that no more jobs will be added, except by jobs of the batch, and how many jobs
// there are, so that a loss is found.
func (db DB) CloseBatch(ctx context.Context, name string) error {
	for {
		b, err := db.Batch(ctx, name)
		if err != nil || !b.Ended.IsZero() {
			return err
		}
		fields := []any{"closed", 1}
		for queue := range b.queues {
			n, err := db.Redis.ZCard(ctx, batchKey(queue, name)).Result()
			if err != nil {
				return err
			}
			fields = append(fields, "queue:"+queue, n)
		}
		if ok, err := db.set(ctx, b, BatchTime, fields...); ok || err != nil {
			return err
		}
	}
}

// EndBatch notes that a closed batch has ended if all its jobs have ended, and reports whether it has
// ended. The queues are in different slots, so it counts twice: if no job was unfinished and none was
// added in between, no job that could add others ran between the two counts.
func (db DB) EndBatch(ctx context.Context, b BatchRecord) (ended bool, err error) {
	if !b.Ended.IsZero() || !b.Closed {
		return b.Closed, nil
	}
	first, err := db.CountBatch(ctx, b)
	if err != nil || first[BatchUnfinished] > 0 {
		return false, err
	}
	second, err := db.CountBatch(ctx, b)
	if err != nil || first != second {
		return false, err // a job was added, or an archived one has completed: look again later
	}
	return db.set(ctx, b, BatchTime, "ended", time.Now().UnixMilli())
}

// FinishBatch notes that nothing is left to do for an ended batch. Its data expire after
// EndedBatchTime.
func (db DB) FinishBatch(ctx context.Context, b BatchRecord) error {
	_, err := db.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for queue := range b.queues {
			p.Expire(ctx, batchKey(queue, b.Name), EndedBatchTime)
		}
		return nil
	})
	if err == nil {
		_, err = db.set(ctx, b, EndedBatchTime, "done", 1)
	}
	if err == nil {
		err = db.DropBatch(ctx, b.Name)
	}
	return err
}

var batchReconcileScript = script.New("asynq/batch_reconcile")

// ReconcileBatch notes which jobs of a batch others have ended, such as asynq's Inspector. It looks at
// the first unfinished jobs of each queue, and at more while it finds some that have ended. So it finds
// all of them at last, because the others end.
func (db DB) ReconcileBatch(ctx context.Context, b BatchRecord) error {
	for queue := range b.queues {
		for ended := 1; ended > 0; {
			var err error
			if ended, err = batchReconcileScript.Run(ctx, db.Redis, []string{batchKey(queue, b.Name)}, Hash(queue, ""), batchPage).Int(); err != nil {
				return err
			}
		}
	}
	return nil
}

// LookAtBatches returns the batches that are not done. One caller gets them in the given time; for
// all others the result is empty.
func (db DB) LookAtBatches(ctx context.Context, every time.Duration) ([]string, error) {
	first, err := db.Redis.SetNX(ctx, batchesLook, 1, every).Result()
	if err == nil && first {
		return db.Redis.SMembers(ctx, batches).Result()
	}
	return nil, err
}

// DropBatch removes a batch from those of LookAtBatches.
func (db DB) DropBatch(ctx context.Context, name string) error {
	return db.Redis.SRem(ctx, batches, name).Err()
}

// InBatch reports whether a job is known to be, or to have been, in a batch.
func (db DB) InBatch(ctx context.Context, name, queue, id string) bool {
	return db.Redis.ZScore(ctx, batchKey(queue, name), id).Err() == nil
}

// RunAgain notes that an archived job of a batch has not ended, because it will run again. If the job
// stays archived, ReconcileBatch notes that.
func (db DB) RunAgain(ctx context.Context, name string, job throttle.JobID) error {
	return db.Redis.ZAddXX(ctx, batchKey(job.Queue, name), redis.Z{Score: float64(BatchUnfinished), Member: job.ID}).Err()
}

func (c *Call) endsInBatch() bool { return c.Batch != "" && c.BatchEnd != 0 }

// AddToBatch returns the text and the arguments of asynq's script that enqueues a job, so that it also
// adds the job to a batch in the given state. A job that has been in the batch is not enqueued: that
// is asynq's error for an ID that exists.
func AddToBatch(name string, state BatchState, text string, keys []string, args []any) (string, []any) {
	for _, key := range keys {
		queue, field := ParseKey(key)
		if id, ok := strings.CutPrefix(field, HashPrefix); ok {
			args = append(slices.Clip(args), batchKey(queue, name), id, int(state), int(BatchTime/time.Second))
		}
	}
	return script.BatchHead + text + script.BatchAdd, args
}
