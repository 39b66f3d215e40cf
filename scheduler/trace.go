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

// Traces go to OpenTelemetry's global tracer provider, and a job carries its
// context in its headers as the global propagator writes it. Where the program
// sets neither, nothing is recorded and no header added.
//
// A Client's Enqueue is a span, and each run of the job another one below it.
// Between them stands one span for the wait from the first denial, however
// often the job was put back. Names follow the conventions for messaging:
// https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/

// traceScope names who records the spans: this package, as OpenTelemetry wants it.
const traceScope = "github.com/headgate/headgate/scheduler"

// tracer is looked up for each span: a program may set its provider at any time.
func tracer() trace.Tracer { return otel.Tracer(traceScope) }

// traceEnqueue begins the span of an Enqueue. end ends it with what came of it: only
// then is the job's ID known, where asynq chose one.
func traceEnqueue(ctx context.Context, task *asynq.Task) (_ context.Context, end func(*asynq.TaskInfo, error)) {
	ctx, span := tracer().Start(ctx, "send "+task.Type(), trace.WithSpanKind(trace.SpanKindProducer))
	return ctx, func(info *asynq.TaskInfo, err error) {
		if info != nil {
			span.SetAttributes(jobAttributes(job{Queue: info.Queue, ID: info.ID}, task.Type())...)
		}
		endSpan(span, err)
	}
}

// traceHeaders are what a job carries of the context that it is enqueued in: none
// unless the program has set a propagator. The caller may add to them.
func traceHeaders(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	return carrier
}

// traceRun begins the span of a job's run, after one for the time that it waited
// for its permits. end ends it with what became of it: a job that is put back
// has not failed. An attempt that is denied has no span, or a long wait would be
// one of many; the span of the wait is made when it is over, back in time, since no
// process lives through all of it.
func (a *attempt) traceRun(ctx context.Context) (_ context.Context, end func(error)) {
	d := a.decision
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(maps.Clone(a.task.Headers())))
	now := time.Now()
	attributes := jobAttributes(a.job, a.task.Type())
	if d.Waited > 0 {
		_, wait := tracer().Start(ctx, "wait "+a.task.Type(), trace.WithTimestamp(now.Add(-d.Waited)), trace.WithAttributes(attributes...),
			trace.WithAttributes(attribute.String("headgate.limit", d.Limit), attribute.Int("headgate.denials", d.Denials)))
		wait.End(trace.WithTimestamp(now))
	}
	ctx, span := tracer().Start(ctx, "process "+a.task.Type(), trace.WithTimestamp(now), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributes...), trace.WithAttributes(attribute.Int("headgate.attempt", a.retried+1)))
	return ctx, func(err error) { endSpan(span, err) }
}

// jobAttributes are what the spans of a job have in common. An ID is one of the
// attributes and not of the name: names should be few.
func jobAttributes(j job, typename string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "asynq"),
		attribute.String("messaging.destination.name", j.Queue),
		attribute.String("messaging.message.id", j.ID),
		attribute.String("headgate.task", typename),
	}
}

// endSpan ends a span with an error's text, or as a success where the job is only
// put back.
func endSpan(span trace.Span, err error) {
	if later, ok := errors.AsType[*putBackError](err); ok {
		span.AddEvent("put back", trace.WithAttributes(attribute.String("reason", later.Error())))
	} else if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
