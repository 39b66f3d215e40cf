package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/expr-lang/expr"

	"github.com/headgate/headgate/internal/hostname"
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

// Done is a job that has run, and what came of it.
type Done struct {
	Job
	// Result is what the handler wrote: JSON, or any other text.
	Result []byte

	read   bool
	result any
}

type doneEnv struct {
	jobEnv
	Result any `expr:"result"`
}

func (e doneEnv) with(left *budget) any { e.Left = left; return e }

func (d *Done) env(f *formula) (environment, error) {
	env, err := d.Job.env(f)
	if err != nil {
		return nil, err
	}
	if !d.read {
		d.read = true
		if d.result, err = decode("result", d.Result); err != nil && len(d.Result) > 0 {
			d.result = string(d.Result)
		}
	}
	return doneEnv{env, d.result}, nil
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
	return each(value, number), nil
}

// number is an int for a json.Number that is one, otherwise a float64, and where that is
// too small for it, text. Any other value it leaves as it is.
func number(value any) any {
	n, ok := value.(json.Number)
	if !ok {
		return value
	}
	if whole, err := n.Int64(); err == nil {
		return int(whole)
	}
	if float, err := n.Float64(); err == nil {
		return float
	}
	return n.String()
}

// each replaces what is in JSON, and in that, but for the lists and objects themselves.
func each(value any, by func(any) any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = each(inner, by)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = each(inner, by)
		}
		return v
	}
	return by(value)
}

var hostFunction = expr.Function("host", func(args ...any) (any, error) {
	return host(args[0])
}, func(any) string { return "" })

// host is the host name of an absolute URL, without its port, in the form in which all
// ways to write it count as one: see package hostname.
func host(value any) (string, error) {
	text, ok := value.(string)
	if value == nil {
		return "", errors.New("there is no URL to take the host of")
	}
	if !ok {
		return "", fmt.Errorf("host wants a URL as text, not %s", describe(value))
	}
	shown := text[:min(len(text), 100)]
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", shown)
	}
	name, err := hostname.Of(u.Hostname())
	if err != nil {
		return "", err
	}
	if u.Scheme == "" || name == "" {
		return "", fmt.Errorf("%q has no host: want an absolute URL such as https://example.com/", shown)
	}
	return name, nil
}
