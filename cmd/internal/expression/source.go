package expression

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/expr-lang/expr"

	"github.com/headgate/headgate/internal/canonical"
)

// Source is the input of expressions: a *Job, a *Done or a Tick.
type Source interface {
	// words are the variables that expressions may use.
	words() []string
	// values are the values of the variables. The payload is decoded only if names has it.
	values(names map[string]bool) (map[string]any, error)
}

// zeros have the types of the variables. payload and result are of any type.
var zeros = map[string]any{"task": taskNames{}, "tick": time.Time{}, "high": "", "normal": "", "low": ""}

// Tick is a tick of a schedule, in its zone.
type Tick time.Time

func (Tick) words() []string { return []string{"tick"} }

func (t Tick) values(map[string]bool) (map[string]any, error) {
	return map[string]any{"tick": time.Time(t)}, nil
}

// Job is the input of a rule's expressions. The payload is decoded when the first expression needs it,
// so a rule without expressions accepts payloads that are not JSON. A Job is not safe for concurrent use.
type Job struct {
	Type    string
	Queue   string
	ID      string
	Payload []byte

	decoded bool
	payload any
	err     error
}

type taskNames struct {
	Type  string `expr:"type"`
	Queue string `expr:"queue"`
	ID    string `expr:"id"`
}

func (*Job) words() []string { return []string{"payload", "task"} }

func (j *Job) values(names map[string]bool) (map[string]any, error) {
	if !j.decoded && (names["payload"] || names["$env"]) {
		j.payload, j.err = decode("payload", j.Payload)
		j.decoded = true
	}
	if !names["payload"] && !names["$env"] {
		return map[string]any{"task": taskNames{j.Type, j.Queue, j.ID}}, nil
	}
	return map[string]any{"task": taskNames{j.Type, j.Queue, j.ID}, "payload": j.payload}, j.err
}

// priorityJob has the variables high, normal and low.
type priorityJob struct{ *Job }

func (u priorityJob) words() []string { return append(u.Job.words(), "high", "normal", "low") }

func (u priorityJob) values(names map[string]bool) (map[string]any, error) {
	env, err := u.Job.values(names)
	for _, word := range []string{"high", "normal", "low"} {
		env[word] = word
	}
	return env, err
}

// Done is a finished job with its result.
type Done struct {
	Job
	// Result is what the handler wrote, JSON or other text.
	Result []byte

	read    bool
	result  any
	notJSON error
}

func (d *Done) words() []string { return append(d.Job.words(), "result") }

func (d *Done) values(names map[string]bool) (map[string]any, error) {
	env, err := d.Job.values(names)
	if err != nil {
		return nil, err
	}
	if !d.read {
		d.read = true
		if d.result, d.notJSON = decode("result", d.Result); d.notJSON != nil && len(d.Result) > 0 {
			d.result = string(d.Result)
		}
	}
	env["result"] = d.result
	return env, nil
}

// jsonDone is a finished job whose result must be JSON.
type jsonDone struct{ *Done }

func (a jsonDone) values(names map[string]bool) (map[string]any, error) {
	env, err := a.Done.values(names)
	return env, cmp.Or(err, a.notJSON)
}

// decode reads one JSON value. Whole numbers stay exact, because they can be keys.
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
		return nil, fmt.Errorf("the %s is not JSON: there is text after the first value", what)
	}
	return each(value, number), nil
}

// number converts a json.Number to an int, a float64 or, if it is too large, a text. It returns other
// values unchanged.
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

// each replaces all values in JSON other than lists and objects.
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

// jsonFunction is toJSON on one line. That of expr indents, so its result grows with the depth.
var jsonFunction = expr.Function("toJSON", func(args ...any) (any, error) {
	text, err := json.Marshal(args[0])
	return string(text), err
}, func(any) string { return "" })

// host returns the canonical host name of an absolute URL, without its port.
func host(value any) (string, error) {
	text, ok := value.(string)
	if value == nil {
		return "", errors.New("host wants a URL, not nothing")
	}
	if !ok {
		return "", fmt.Errorf("host wants a URL as text, not %s", describe(value))
	}
	shown := text[:min(len(text), 100)]
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", shown)
	}
	name, err := canonical.Host(u.Hostname())
	if err != nil {
		return "", err
	}
	if u.Scheme == "" || name == "" {
		return "", fmt.Errorf("%q has no host: want an absolute URL such as https://example.com/", shown)
	}
	return name, nil
}

// hostKey spells a host as host(…) does. The text may have a port, or be a URL.
func hostKey(text string) (string, error) {
	name := text
	if _, err := netip.ParseAddr(text); err != nil {
		whole := text
		if !strings.Contains(text, "://") {
			whole = "//" + text
		}
		u, err := url.Parse(whole)
		if err != nil || u.Hostname() == "" {
			return "", fmt.Errorf("%.100q is not the name of a host: want one such as example.com", text)
		}
		name = u.Hostname()
	}
	return canonical.Host(name)
}

// describe names the type of a value for errors.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", value)
}
