package scheduler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// recordTraces records all spans for the length of a test.
func recordTraces(t *testing.T) *tracetest.InMemoryExporter {
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator())
	})
	return spans
}

// TestTraces: a job's spans from its Enqueue over its wait to its run are one trace, though the job
// passes through Redis four times on the way.
func TestTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := recordTraces(t)
		_, rdb := redistest.Mini(t)
		failed, ran := errors.New("no paper"), make(chan struct{}, 2)
		start(t, rdb, settings{
			config: idle, limits: []throttle.Limit{perMinute(1, 1)},
			handle: func(ctx context.Context, _ *asynq.Task) error {
				defer func() { ran <- struct{}{} }()
				if id, _ := asynq.GetTaskID(ctx); id == "b" {
					return errors.Join(failed, asynq.SkipRetry)
				}
				return nil
			},
		})
		client := NewClient(rdb)
		for _, id := range []string{"a", "b"} {
			if _, err := client.Enqueue(NewTask("job", nil, Priority(PriorityHigh)), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
			<-ran
		}
		synctest.Wait()
		all := spans.GetSpans()
		of := func(id, name string) tracetest.SpanStub {
			t.Helper()
			i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool {
				return s.Name == name && slices.Contains(s.Attributes, jobAttributes(job{Queue: "default", ID: id}, "job")[2])
			})
			if i < 0 {
				t.Fatalf("no span %q of job %s among %v", name, id, all)
			}
			return all[i]
		}
		if len(all) != 5 {
			t.Errorf("%d spans, want 5: two sent, two processed, one waited", len(all))
		}
		send, wait, process := of("b", "send job"), of("b", "wait job"), of("b", "process job")
		for _, s := range []tracetest.SpanStub{wait, process} {
			if s.Parent.SpanID() != send.SpanContext.SpanID() || s.SpanContext.TraceID() != send.SpanContext.TraceID() {
				t.Errorf("%s is not below %s", s.Name, send.Name)
			}
		}
		if took := wait.EndTime.Sub(wait.StartTime); took < 40*time.Second || took > 75*time.Second {
			t.Errorf("waited %s, want what is left of a minute, and a poll", took)
		}
		if process.Status.Code != codes.Error || of("a", "process job").Status.Code != codes.Unset {
			t.Errorf("statuses %v, %v; want an error of b alone", process.Status, of("a", "process job").Status)
		}
	})
}

// TestTraces_PutBack: a job that is put back has not failed, and its span has one event.
func TestTraces_PutBack(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		spans := recordTraces(t)
		st.handle = func(context.Context, *asynq.Task) error {
			if len(st.ran()) == 1 {
				return RetryAfter(time.Minute)
			}
			return nil
		}
		st.enqueueN(1, "")
		time.Sleep(5 * time.Minute)
		st.wantRuns(2)
		events := 0
		for _, s := range spans.GetSpans() {
			events += len(s.Events)
			if s.Status.Code != codes.Unset {
				t.Errorf("%s: status %v", s.Name, s.Status)
			}
		}
		if events != 1 {
			t.Errorf("%d events, want 1", events)
		}
	})
}
