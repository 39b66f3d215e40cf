package config

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// Then is a job to enqueue when another job is done.
type Then struct {
	// Type is the task type of the next job. Required.
	Type string `yaml:"type"`
	// Payload is the payload of the next job. Its texts can have ${…} with expressions. $${env:NAME}
	// is a reference to a secret. The value of an expression must not have such a reference.
	Payload any `yaml:"payload"`
	// When is the condition. The zero value means always.
	When expression.When `yaml:"when"`
	// Queue is the queue of the next job. The zero value means the queue of the finished job.
	Queue string `yaml:"queue"`
}

// Next returns the payload of the next job. ok is false if the condition is false. If an expression
// fails or the payload is invalid, Next returns an error. A retry would fail as well.
func (t Then) Next(done *expression.Done) (payload []byte, ok bool, err error) {
	if ok, err = t.When.Value(done); err != nil || !ok {
		return nil, false, err
	}
	payload, err = FillPayload(t.Type, t.Payload, done)
	if err == nil {
		err = tasks.Validate(t.Type, payload)
	}
	if errors.Is(err, tasks.ErrUnknownType) {
		err = nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("then %s: %w", t.Type, err)
	}
	return payload, true, nil
}

// checkThen reports errors, and compiles the payloads in place.
func (d *decoder) checkThen(path string, then []Then, types []string) {
	for i := range then {
		d.checkNext(indexed(path, i), &then[i], types)
	}
}

func (d *decoder) checkNext(at string, t *Then, types []string) {
	if t.Type == "" {
		d.errorf(at+".type", "missing: want the type of the next job")
	} else {
		d.checkReference(at+".type", "task type", t.Type, types)
	}
	if t.Queue != "" {
		d.checkName(at+".queue", t.Queue)
	}
	if t.Payload == nil && slices.Contains(types, t.Type) && tasks.Validate(t.Type, []byte("null")) != nil {
		d.errorf(at+".payload", "missing: want what %s needs, as an object", t.Type)
	}
	t.Payload = compilePayload(at+".payload", t.Type, t.Payload, expression.DoneVars, d.errorf)
}

// TypeBatchDone is the type of the job that follows a batch. Its result has the counts of the batch, and
// OnDone follows it.
const TypeBatchDone = "batch:done"

// OpenBatch opens a batch whose first job is in the given queue. OnDone follows the batch, in that queue
// if it has no queue of its own.
func (c *Config) OpenBatch(ctx context.Context, client *scheduler.Client, name, queue string) error {
	if c.OnDone == nil {
		return client.OpenBatch(ctx, name, nil)
	}
	payload, err := json.Marshal(map[string]string{"batch": name})
	if err != nil {
		return err
	}
	// The payload has nothing by which a sharded queue could choose the shard.
	next := scheduler.NewTask(TypeBatchDone, payload, asynq.Queue(cmp.Or(c.OnDone.Queue, queue)), scheduler.ShardKey(name))
	return client.OpenBatch(ctx, name, next)
}

// Next returns the jobs that follow a job of a type.
func (c *Config) Next(typename string) []Then {
	if typename == TypeBatchDone && c.OnDone != nil {
		return []Then{*c.OnDone}
	}
	return c.Tasks[typename].Then
}

// mayReferToSecrets reports whether a field of a type's payload can refer to secrets.
func mayReferToSecrets(typename, field string) bool {
	return typename == tasks.TypeHTTPRequest && !strings.EqualFold(field, "body")
}

// FillPayload evaluates the templates of a payload, and returns the payload as JSON. An expression
// must not result in a reference to a secret, because its input can come from others. So FillPayload
// returns an error if the result has more references than the plain texts of the templates.
func FillPayload(typename string, payload any, from expression.Source) ([]byte, error) {
	written, resulting := 0, 0 // references
	filled, err := replaceLeaves("", "", payload, func(_, field string, leaf any) (any, error) {
		template, ok := leaf.(expression.Template)
		if !ok {
			return leaf, nil
		}
		for _, text := range template.PlainTexts() {
			if n, _ := tasks.References(text); mayReferToSecrets(typename, field) {
				written += n
			}
		}
		return template.Value(from)
	})
	if err != nil {
		return nil, err
	}
	fields, _ := filled.(map[string]any)
	for name, value := range fields {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if n, _ := tasks.References(string(text)); mayReferToSecrets(typename, name) {
			resulting += n
		}
	}
	if resulting > written {
		return nil, errors.New("the value of an expression has ${env: or ${file: in it, which refers to a secret: want references to secrets only around expressions")
	}
	return json.Marshal(filled)
}

// replaceLeaves returns a copy of a payload in which replace has replaced each leaf. replace gets
// the leaf's path and top-level field. replaceLeaves stops at the first error.
func replaceLeaves(path, field string, value any, replace func(path, field string, leaf any) (any, error)) (_ any, err error) {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if made[key], err = replaceLeaves(join(path, key), cmp.Or(field, key), v[key], replace); err != nil {
				return nil, err
			}
		}
		return made, nil
	case []any:
		made := make([]any, len(v))
		for i := range v {
			if made[i], err = replaceLeaves(indexed(path, i), field, v[i], replace); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return replace(path, field, value)
}

// ParsePayload returns a payload in JSON for FillPayload. Its texts can be templates.
func ParsePayload(typename, text string, vars []string) (payload any, err error) {
	quoted := expression.QuoteBare(text)
	if payload, err = redact.Decode([]byte(quoted), len(quoted)); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", strictjson.Shorten([]byte(text)), err)
	}
	payload = compilePayload("", typename, payload, vars, func(path, format string, args ...any) {
		err = cmp.Or(err, fmt.Errorf(format, args...))
	})
	return payload, err
}

// compilePayload replaces each text of a payload by its template. It reports a reference to a secret
// with an expression inside, because such a reference does not work.
func compilePayload(path, typename string, payload any, vars []string, report func(path, format string, args ...any)) any {
	made, _ := replaceLeaves(path, "", payload, func(path, field string, leaf any) (any, error) {
		text, ok := leaf.(string)
		if !ok {
			return leaf, nil
		}
		template, err := expression.ParseTemplate(text, vars)
		if err != nil {
			report(path, "%v", err)
		}
		for _, text := range template.PlainTexts() {
			if _, err := tasks.References(text); err != nil && mayReferToSecrets(typename, field) {
				report(path, "want the whole name of a secret, as $${env:NAME} or $${file:/path}, and no expression in it")
			}
		}
		return template, nil
	})
	return made
}
