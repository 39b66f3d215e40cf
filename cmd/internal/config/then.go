package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/tasks"
)

// Then is a job to enqueue when another job is done.
type Then struct {
	// Type is the task type of the next job. Required.
	Type string `yaml:"type"`
	// Payload is the payload of the next job. Its texts may have ${…} with expressions. A secret is
	// written as $${env:NAME}. It is an error if the value of an expression has such a reference.
	Payload any `yaml:"payload"`
	// When is the condition. The zero value means always.
	When expression.When `yaml:"when"`
	// Queue is the queue of the next job. The zero value means the queue of the finished job.
	Queue string `yaml:"queue"`
}

// Next returns the payload of the next job, or ok = false if the condition does not hold. It
// returns an error if an expression fails or the payload is invalid. A retry would fail as well.
func (t Then) Next(done *expression.Done) (payload []byte, ok bool, err error) {
	if ok, err = t.When.Of(done); err != nil || !ok {
		return nil, false, err
	}
	payload, err = fill(t.Type, t.Payload, done)
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

// checkThen compiles the payloads and reports errors.
func (d *decoder) checkThen(path string, then []Then, types []string) {
	for i := range then {
		at := indexed(path, i)
		if then[i].Type == "" {
			d.errorf(at+".type", "missing: want the type of the next job")
		} else {
			d.checkReference(at+".type", "task type", then[i].Type, types)
		}
		if then[i].Queue != "" {
			d.checkName(at+".queue", then[i].Queue)
		}
		if then[i].Payload == nil && slices.Contains(types, then[i].Type) && tasks.Validate(then[i].Type, []byte("null")) != nil {
			d.errorf(at+".payload", "missing: want what %s needs, as an object", then[i].Type)
		}
		then[i].Payload = d.compile(at+".payload", then[i].Type, then[i].Payload, expression.DoneVars)
	}
}

// refers reports whether a field of a type's payload can refer to secrets.
func refers(typename, field string) bool {
	return typename == tasks.TypeHTTPRequest && !strings.EqualFold(field, "body")
}

// fill evaluates the templates of a payload and returns it as JSON. An expression must not result
// in a reference to a secret, because its input comes from others, such as a server that answered.
// So the result may have no more references than the templates have; own is the difference.
func fill(typename string, payload any, from expression.Source) ([]byte, error) {
	own := 0
	filled, err := eachLeaf("", "", payload, func(_, field string, leaf any) (any, error) {
		template, ok := leaf.(expression.Template)
		if !ok {
			return leaf, nil
		}
		for _, text := range template.Texts() {
			if n, _ := tasks.References(text); refers(typename, field) {
				own += n
			}
		}
		return template.Of(from)
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
		if n, _ := tasks.References(string(text)); refers(typename, name) {
			own -= n
		}
	}
	if own < 0 {
		return nil, errors.New("the value of an expression has ${env: or ${file: in it, which refers to a secret: want that in the config alone, or in the body")
	}
	return json.Marshal(filled)
}

// eachLeaf returns a copy of a payload in which replace has replaced each leaf. replace gets the
// leaf's path, its top-level field in the payload, and the leaf. eachLeaf stops at the first error.
func eachLeaf(path, field string, value any, replace func(path, field string, leaf any) (any, error)) (_ any, err error) {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if made[key], err = eachLeaf(join(path, key), cmp.Or(field, key), v[key], replace); err != nil {
				return nil, err
			}
		}
		return made, nil
	case []any:
		made := make([]any, len(v))
		for i := range v {
			if made[i], err = eachLeaf(indexed(path, i), field, v[i], replace); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return replace(path, field, value)
}

// compile replaces each text of a payload by its template. It reports a reference to a secret with
// an expression inside, because the worker would send the reference itself.
func (d *decoder) compile(path, typename string, payload any, vars []string) any {
	made, _ := eachLeaf(path, "", payload, func(path, field string, leaf any) (any, error) {
		text, ok := leaf.(string)
		if !ok {
			return leaf, nil
		}
		template, err := expression.ParseTemplate(text, vars)
		if err != nil {
			d.errorf(path, "%v", err)
		}
		for _, text := range template.Texts() {
			if _, err := tasks.References(text); err != nil && refers(typename, field) {
				d.errorf(path, "want the whole name of a secret, as $${env:NAME} or $${file:/path}, and no expression in it")
			}
		}
		return template, nil
	})
	return made
}
