package worker

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/cmd/internal/config"
)

// open connects to the Redis of the options, or of the config. end closes the connections, and stops
// the embedded Redis if this worker runs it.
func (w *Worker) open(ctx context.Context, r config.Redis) (end func(), err error) {
	if w.redis = w.options.Redis; w.redis != nil {
		return func() {}, nil
	}
	if !r.IsZero() { // await waits until this Redis answers
		w.redis, err = r.Client()
		return func() { _ = w.redis.Close() }, err
	}
	note := func(line string) { fmt.Fprintln(w.options.Notes, "worker: "+line) }
	rdb, stop, err := r.Create(ctx, note)
	if err != nil {
		return nil, err
	}
	w.redis = rdb
	return func() {
		if err := stop(); err != nil {
			note(err.Error())
		}
	}, nil
}
