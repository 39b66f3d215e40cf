package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/tasks"
)

// Then is a job to enqueue when another is done.
type Then struct {
	// Type is the task type of the next job. Required.
	Type string `yaml:"type"`
	// Payload is the next job's. Its texts may have ${…} with expressions. It refers to a secret
	// as $${env:NAME}; what an expression yields refers to none.
	Payload any `yaml:"payload"`
	// When is the condition for it. The zero value means always.
	When expression.When `yaml:"when"`
	// Queue is the next job's. The zero value means that of the job that is done.
	Queue string `yaml:"queue"`
}

// Next is the payload of the job that follows on one that is done; ok is false
// if none does. The error is that of an expression, or of a payload that the
// job's type would refuse: trying again will not mend it.
func (t Then) Next(done *expression.Done) (payload []byte, ok bool, err error) {
	if ok, err = t.When.Of(done); err != nil || !ok {
		return nil, false, err
	}
	payload, err = fill(t.Type, t.Payload, func(t expression.Template, q expression.Quote) (any, error) { return t.OfDone(done, q) })
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

// checkThen compiles the payloads and reports what is wrong with what follows on
// a type's jobs.
func (d *decoder) checkThen(path string, then []Then, c *Config) {
	for i := range then {
		at := indexed(path, i)
		if then[i].Type == "" {
			d.errorf(at+".type", "missing: want the type of the next job")
		} else {
			d.checkReference(at+".type", "task type", then[i].Type, c.Types())
		}
		if then[i].Queue != "" {
			d.checkName(at+".queue", then[i].Queue)
		}
		if then[i].Payload == nil && slices.Contains(c.Types(), then[i].Type) && tasks.Validate(then[i].Type, []byte("null")) != nil {
			d.errorf(at+".payload", "missing: want what %s needs, as an object", then[i].Type)
		}
		then[i].Payload = d.compile(at+".payload", then[i].Payload, expression.ParseDoneTemplate)
		d.checkNames(at+".payload", then[i].Type, then[i].Payload)
	}
}
