package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqScripts are asynq's calls for one job, as recorder saw them.
type asynqScripts struct {
	enqueue, dequeue, done recordedCall
	message                []byte // the job's, as asynq stores it
}

// recordedCall is a call of a script that Redis knows.
type recordedCall struct {
	sha  string
	keys []string
	args []any
	id   string // of the call's job; run puts another ID in its place
}

// run makes the call for another job.
func (c recordedCall) run(ctx context.Context, rdb *redis.Client, id string) error {
	keys, args := slices.Clone(c.keys), slices.Clone(c.args)
	for i, key := range keys {
		keys[i] = strings.ReplaceAll(key, c.id, id)
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = strings.ReplaceAll(arg, c.id, id)
		case []byte:
			args[i] = bytes.ReplaceAll(arg, []byte(c.id), []byte(id))
		}
	}
	return rdb.EvalSha(ctx, c.sha, keys, args...).Err()
}

// recordAsynq runs one job with asynq, and records its calls.
func recordAsynq(ctx context.Context, options *redis.Options) (asynqScripts, error) {
	recorder := &recorder{UniversalClient: redis.NewClient(options), calls: map[string]recordedCall{}}
	defer recorder.Close()
	client := asynq.NewClientFromRedisClient(recorder)
	ran := make(chan struct{})
	server := asynq.NewServerFromRedisClient(recorder, asynq.Config{Concurrency: 1, Queues: map[string]int{rigQueue: 1}, LogLevel: asynq.FatalLevel})
	payload := []byte(`{"Number":1000}`)
	if _, err := client.EnqueueContext(ctx, asynq.NewTask(taskType, payload), asynq.Queue(rigQueue), asynq.TaskID(rigID(0))); err != nil {
		return asynqScripts{}, err
	}
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { close(ran); return nil })); err != nil {
		return asynqScripts{}, err
	}
	select {
	case <-ran:
	case <-ctx.Done():
	}
	server.Shutdown() // waits until the job is acknowledged
	return recorder.scripts()
}

// recorder keeps the last call of each script. The keys of calls are those of asynqCall.
type recorder struct {
	redis.UniversalClient
	mu    sync.Mutex
	calls map[string]recordedCall
}

// EvalSha implements redis.Scripter.
func (r *recorder) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	r.mu.Lock()
	r.calls[asynqCall(keys)] = recordedCall{sha, keys, args, rigID(0)}
	r.mu.Unlock()
	return r.UniversalClient.EvalSha(ctx, sha, keys, args...)
}

// asynqCall tells asynq's scripts apart by their keys.
func asynqCall(keys []string) string {
	var names []string
	for _, key := range keys {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, asynqdb.Key(rigQueue, "")), ":")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func (r *recorder) scripts() (asynqScripts, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := asynqScripts{
		enqueue: r.calls["t pending"], dequeue: r.calls["pending paused active lease"],
		done: r.calls["active lease t processed processed"],
	}
	for _, call := range []recordedCall{s.enqueue, s.dequeue, s.done} {
		if call.sha == "" {
			return s, errors.New("asynq enqueues, dequeues or acknowledges in another way than the bench knows")
		}
	}
	s.message, _ = s.enqueue.args[0].([]byte)
	return s, nil
}
