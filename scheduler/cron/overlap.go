package cron

import (
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/words"
)

// Overlap says whether jobs of one entry may wait or run at the same time.
type Overlap int

const (
	// OverlapAllow lets them. It is the zero value.
	OverlapAllow Overlap = iota
	// OverlapSkip drops a tick while the job of the tick before it, or the one
	// that Trigger enqueued last, is unfinished.
	OverlapSkip
)

var overlapWords = words.Words{OverlapAllow: "allow", OverlapSkip: "skip"}

// String is the word as config files write it: allow or skip.
func (o Overlap) String() string { return overlapWords.Text(int(o)) }

// MarshalText writes what String does. It fails for what is neither.
func (o Overlap) MarshalText() ([]byte, error) { return overlapWords.Marshal(int(o)) }

// UnmarshalText reads what String writes. Its error names both.
func (o *Overlap) UnmarshalText(text []byte) error { return overlapWords.Unmarshal(text, (*int)(o)) }

// unfinished reports whether any of the jobs still waits or runs. One that was
// completed, archived or deleted is finished; one that asynq will try again is not.
func (r *Runner) unfinished(jobs ...jobRef) (bool, error) {
	for _, job := range jobs {
		if job.id == "" {
			continue
		}
		info, err := r.inspector.GetTaskInfo(job.queue, job.id)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		case err != nil:
			return false, fmt.Errorf("looking for job %s in queue %s: %w", job.id, job.queue, err)
		case info.State != asynq.TaskStateCompleted && info.State != asynq.TaskStateArchived:
			return true, nil
		}
	}
	return false, nil
}
