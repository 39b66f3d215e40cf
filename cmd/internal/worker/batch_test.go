package worker

import (
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
)

// A worker whose config has no on_done says so, and does not retry the job.
func TestBatchDone_NoOnDone(t *testing.T) {
	w, err := New(parse(t, ""), Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := w.handlerOf(config.TypeBatchDone)
	if err := h.Check(asynq.NewTask(config.TypeBatchDone, nil)); !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "has no on_done") {
		t.Errorf("it says %v", err)
	}
	w.config.Store(parse(t, "commands: {tell: {run: [echo]}}\non_done: {type: \"exec:tell\", payload: {}}"))
	if err := h.Check(asynq.NewTask(config.TypeBatchDone, nil)); err != nil {
		t.Errorf("with on_done it says %v", err)
	}
}
