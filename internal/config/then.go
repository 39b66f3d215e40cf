package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// referring are the fields of a type's payload whose texts can refer to secrets. Only
// what the config itself says there does: what an expression yields may be written by
// anybody, such as the server that answered.
var referring = map[string][]string{tasks.TypeHTTPRequest: {"url", "headers"}}

func quoteOf(typename, field string) expression.Quote {
	if slices.Contains(referring[typename], field) {
		return tasks.Literal
	}
	return nil
}

type evaluate func(expression.Template, expression.Quote) (any, error)

// fill is a type's payload as JSON, with its templates evaluated. The error is that of
// the first expression that fails.
func fill(typename string, payload any, of evaluate) ([]byte, error) {
	filled, err := fillFields(typename, payload, of)
	if err != nil {
		return nil, err
	}
	return json.Marshal(filled)
}

func fillFields(typename string, payload any, of evaluate) (any, error) {
	fields, ok := payload.(map[string]any)
	if !ok { // one expression gives all of it
		value, err := fillValue(payload, nil, of)
		if err != nil {
			return nil, err
		}
		return quoteFields(typename, value)
	}
	filled := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var err error
		if filled[name], err = fillValue(fields[name], quoteOf(typename, name), of); err != nil {
			return nil, err
		}
	}
	return filled, nil
}

// quoteFields is a payload that an expression has yielded, with all texts quoted that
// could refer to secrets. The value itself does not change: it may be the job's result.
func quoteFields(typename string, value any) (_ any, err error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return value, nil
	}
	fields = maps.Clone(fields)
	for _, name := range referring[typename] {
		if value, ok := fields[name]; ok {
			if fields[name], err = quoteOf(typename, name).In(value); err != nil {
				return nil, err
			}
		}
	}
	return fields, nil
}

func fillValue(value any, quote expression.Quote, of evaluate) (any, error) {
	return eachLeaf("", value, func(_ string, leaf any) (any, error) {
		if template, ok := leaf.(expression.Template); ok {
			return of(template, quote)
		}
		return leaf, nil
	})
}

// eachLeaf is a payload with each of its leaves replaced by what of gives for it and its path,
// up to the first error.
func eachLeaf(path string, value any, of func(path string, leaf any) (any, error)) (_ any, err error) {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if made[key], err = eachLeaf(join(path, key), v[key], of); err != nil {
				return nil, err
			}
		}
		return made, nil
	case []any:
		made := make([]any, len(v))
		for i := range v {
			if made[i], err = eachLeaf(indexed(path, i), v[i], of); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return of(path, value)
}

// compile replaces each text of a payload by its template.
func (d *decoder) compile(path string, value any, parse func(string) (expression.Template, error)) any {
	made, _ := eachLeaf(path, value, func(path string, leaf any) (any, error) {
		text, ok := leaf.(string)
		if !ok {
			return leaf, nil
		}
		template, err := parse(text)
		if err != nil {
			d.errorf(path, "%v", err)
		}
		return template, nil
	})
	return made
}

// checkNames reports the reference to a secret that an expression would complete: as
// only whole ones are references, it would be sent as text.
func (d *decoder) checkNames(path, typename string, payload any) {
	fields, _ := payload.(map[string]any)
	check := func(path string, leaf any) (any, error) {
		if template, ok := leaf.(expression.Template); ok {
			for _, text := range template.Between() {
				if tasks.Literal(text) != text {
					d.errorf(path, "want the whole name of a secret, as $${env:NAME} or $${file:/path}, and no expression in it")
				}
			}
		}
		return leaf, nil
	}
	for _, name := range referring[typename] {
		_, _ = eachLeaf(join(path, name), fields[name], check)
	}
}
