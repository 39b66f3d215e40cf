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

// Source is what expressions see: a *Job, a *Done or a Tick.
type Source interface {
	// words are the names that expressions may use.
	words() []string
	// values are what these are. What is dear to find is only there if it is among the names.
	values(names map[string]bool) (map[string]any, error)
}

// zeros are of the types of the words; payload and result are of any.
var zeros = map[string]any{"task": taskNames{}, "tick": time.Time{}, "high": "", "normal": "", "low": ""}

// Tick is the moment of a schedule, in its zone.
type Tick time.Time

func (Tick) words() []string { return []string{"tick"} }

func (t Tick) values(map[string]bool) (map[string]any, error) {
	return map[string]any{"tick": time.Time(t)}, nil
}

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

// urgency is a job of which a priority can be written without quotes.
type urgency struct{ *Job }

func (u urgency) words() []string { return append(u.Job.words(), "high", "normal", "low") }

func (u urgency) values(names map[string]bool) (map[string]any, error) {
	env, err := u.Job.values(names)
	for _, word := range []string{"high", "normal", "low"} {
		env[word] = word
	}
	return env, err
}

// Done is a job that has run, and what came of it.
type Done struct {
	Job
	// Result is what the handler wrote: JSON, or any other text.
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

// answered is a job whose result must be JSON.
type answered struct{ *Done }

func (a answered) values(names map[string]bool) (map[string]any, error) {
	env, err := a.Done.values(names)
	return env, cmp.Or(err, a.notJSON)
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

// jsonFunction is toJSON on one line: that of expr indents, and so takes the text times its depth.
var jsonFunction = expr.Function("toJSON", func(args ...any) (any, error) {
	text, err := json.Marshal(args[0])
	return string(text), err
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
	name, err := canonical.Host(u.Hostname())
	if err != nil {
		return "", err
	}
	if u.Scheme == "" || name == "" {
		return "", fmt.Errorf("%q has no host: want an absolute URL such as https://example.com/", shown)
	}
	return name, nil
}

// hostKey is a host in the spelling in which host(…) gives it. The text may have a port, or be a URL.
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

// describe names the type of a value in the words of JSON.
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
