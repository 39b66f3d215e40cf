package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Job is what the expressions of a rule see of one job. It decodes the payload
// when the first expression asks for it, so a rule without any runs jobs whose
// payload is not JSON. A Job is for one goroutine.
type Job struct {
	Type    string
	Queue   string
	ID      string
	Payload []byte

	decoded bool
	payload any
	err     error
}

type jobEnv struct {
	Payload any     `expr:"payload"`
	Task    taskEnv `expr:"task"`
	Left    *budget `expr:"what is left" json:"-"`
}

func (e jobEnv) with(left *budget) any { e.Left = left; return e }

type taskEnv struct {
	Type  string `expr:"type"`
	Queue string `expr:"queue"`
	ID    string `expr:"id"`
}

func (j *Job) sees(f *formula) (environment, error) { return j.env(f) }

func (j *Job) env(f *formula) (jobEnv, error) {
	env := jobEnv{Task: taskEnv{j.Type, j.Queue, j.ID}}
	if !f.names["payload"] && !f.names["$env"] {
		return env, nil
	}
	if !j.decoded {
		j.payload, j.err = decode("payload", j.Payload)
		j.decoded = true
	}
	env.Payload = j.payload
	return env, j.err
}

// decode reads one JSON value. Whole numbers stay exact: an account number
// must not share a meter with its neighbour.
func decode(what string, payload []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the %s is empty: want JSON", what)
		}
		return nil, fmt.Errorf("the %s is not JSON: %w", what, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the %s is not JSON: something follows the first value", what)
	}
	return numbers(value), nil
}

// numbers replaces each json.Number by an int where it is one, otherwise by a
// float64, and where that is too small for it, leaves it as text.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = numbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = numbers(inner)
		}
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return int(whole)
		}
		if float, err := v.Float64(); err == nil {
			return float
		}
		return v.String()
	}
	return value
}
