package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// batchPause is the minimum time between two checks whether batches have ended.
	batchPause = 250 * time.Millisecond
	// batchInterval is the time after which one of the servers checks all batches again.
	batchInterval = time.Minute
)

// batchEnds collects the batches that may have ended, because a job of the batch has ended since the
// last check. It is safe for concurrent use.
type batchEnds struct {
	queues sync.Map // the queue of the last job, by batch
	wake   chan struct{}
	lost   hourlyWarnings
}

func (b *batchEnds) note(name, queue string) {
	b.queues.Store(name, queue)
	offer(b.wake)
}

// finishBatches ends batches whose jobs have all ended, until ctx ends. Each minute one server looks
// at all batches, because a server can die after the last job, and others than servers end jobs, too.
func (s *Server) finishBatches(ctx context.Context) {
	client, next := NewClient(s.db.Redis), time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.batchEnds.wake:
			s.batchEnds.queues.Range(func(name, _ any) bool {
				queue, _ := s.batchEnds.queues.LoadAndDelete(name)
				if ended, _ := s.db.MayHaveEnded(ctx, name.(string), queue.(string)); ended {
					_ = s.finishBatch(ctx, client, name.(string), false)
				}
				return true
			})
		case <-next.C:
			names, _ := s.db.LookAtBatches(ctx, batchInterval)
			for _, name := range names {
				if err := s.finishBatch(ctx, client, name, true); errors.Is(err, asynqdb.ErrNoBatch) {
					_ = s.db.DropBatch(ctx, name)
				}
			}
			next.Reset(batchInterval)
		}
		sleep(ctx, batchPause)
	}
}

// finishBatch ends a batch if all its jobs have ended. With reconcile it first looks for jobs that
// others have ended.
func (s *Server) finishBatch(ctx context.Context, client *Client, name string, reconcile bool) error {
	b, err := s.db.Batch(ctx, name)
	if err == nil && reconcile && b.Closed && b.Ended.IsZero() {
		err = s.db.ReconcileBatch(ctx, b)
	}
	if err == nil {
		err = client.finishBatch(ctx, b)
	}
	if errors.Is(err, asynqdb.ErrBatchLost) && s.batchEnds.lost.mayWarn(name) {
		s.log.Warn("Redis has lost jobs of a batch: the batch does not end", "batch", name)
	}
	return err
}
