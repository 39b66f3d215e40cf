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

// Then is a job to enqueue when another is done.
type Then struct {
	// Type is the task type of the next job. Required.
	Type string `yaml:"type"`
	// Payload is the next job's. Its texts may have ${…} with expressions. It refers to a secret
	// as $${env:NAME}. An expression must not give such a reference.
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

// checkThen compiles the payloads and reports what is wrong with what follows on
// a type's jobs.
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
		then[i].Payload = d.compile(at+".payload", then[i].Type, then[i].Payload, &expression.Done{})
	}
}

// refers reports whether the texts in a field of a type's payload can refer to secrets.
func refers(typename, field string) bool {
	return typename == tasks.TypeHTTPRequest && !strings.EqualFold(field, "body")
}

// fill is a type's payload as JSON, with its templates evaluated. The error is that of the first
// expression that fails, or that an expression gives a reference to a secret: only the config
// itself may, because an expression sees what others wrote, such as the server that answered.
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
		return nil, errors.New("an expression gives a text with ${env: or ${file: in it, which refers to a secret: want that in the config alone, or in the body")
	}
	return json.Marshal(filled)
}

// eachLeaf is a payload with each of its leaves replaced by what of gives for it, its path and
// the payload's field that it is in, up to the first error.
func eachLeaf(path, field string, value any, of func(path, field string, leaf any) (any, error)) (_ any, err error) {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if made[key], err = eachLeaf(join(path, key), cmp.Or(field, key), v[key], of); err != nil {
				return nil, err
			}
		}
		return made, nil
	case []any:
		made := make([]any, len(v))
		for i := range v {
			if made[i], err = eachLeaf(indexed(path, i), field, v[i], of); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return of(path, field, value)
}

// compile replaces each text of a type's payload by its template. It reports a reference to a
// secret that an expression would complete: as only whole ones are references, it would be
// sent as text.
func (d *decoder) compile(path, typename string, payload any, about expression.Source) any {
	made, _ := eachLeaf(path, "", payload, func(path, field string, leaf any) (any, error) {
		text, ok := leaf.(string)
		if !ok {
			return leaf, nil
		}
		template, err := expression.ParseTemplate(text, about)
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
