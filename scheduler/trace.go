package scheduler

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Traces go to OpenTelemetry's global tracer provider. The global propagator writes a job's trace
// context into the job's headers. If the program sets neither, nothing is recorded and no header is
// added. A Client's Enqueue is a span, and each run of the job is a child span of it. One more span
// covers the wait from the first denial to the start. Names follow
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/

// tracerName is the name of the tracer. The tracer is looked up for each span, because a program
// may set its provider at any time.
const tracerName = "github.com/headgate/headgate/scheduler"

// traceEnqueue begins the span of an Enqueue. The function end adds the job's ID and ends the span.
func traceEnqueue(ctx context.Context, task *asynq.Task) (_ context.Context, end func(*asynq.TaskInfo, error)) {
	ctx, span := otel.Tracer(tracerName).Start(ctx, "send "+task.Type(), trace.WithSpanKind(trace.SpanKindProducer))
	return ctx, func(info *asynq.TaskInfo, err error) {
		if info != nil {
			span.SetAttributes(jobAttributes(job{Queue: info.Queue, ID: info.ID}, task.Type())...)
		}
		endSpan(span, err)
	}
}

// traceRun starts the span of a run. If the job waited for permits, traceRun first records a span
// of the wait, which can begin and end in different processes. The function end ends the span of
// the run.
func (a *attempt) traceRun(ctx context.Context) (_ context.Context, end func(error)) {
	d := a.decision
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(maps.Clone(a.task.Headers())))
	now := time.Now()
	attributes := jobAttributes(a.JobID, a.task.Type())
	if d.Waited > 0 {
		_, wait := otel.Tracer(tracerName).Start(ctx, "wait "+a.task.Type(), trace.WithTimestamp(now.Add(-d.Waited)), trace.WithAttributes(attributes...),
			trace.WithAttributes(attribute.String("headgate.limit", d.Limit), attribute.Int("headgate.denials", d.Denials)))
		wait.End(trace.WithTimestamp(now))
	}
	ctx, span := otel.Tracer(tracerName).Start(ctx, "process "+a.task.Type(), trace.WithTimestamp(now), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributes...), trace.WithAttributes(attribute.Int("headgate.attempt", a.retried+1)))
	return ctx, func(err error) { endSpan(span, err) }
}

func jobAttributes(j job, typename string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "asynq"),
		attribute.String("messaging.destination.name", j.Queue),
		attribute.String("messaging.message.id", j.ID),
		attribute.String("headgate.task", typename),
	}
}

// endSpan ends a span with an error's text, or as a success if the job is only put back.
func endSpan(span trace.Span, err error) {
	if later, ok := errors.AsType[*putBackError](err); ok {
		span.AddEvent("put back", trace.WithAttributes(attribute.String("reason", later.Error())))
	} else if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
