package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/strictjson"
)

// Source is the input of expressions: a *Job, a *Done, a *Response, a Tick or a Row.
type Source interface {
	// values returns the values of at least the used variables. $env stands for all variables.
	values(used map[string]bool) (map[string]any, error)
}

// The variables of expressions about a job, a finished job and a schedule.
var (
	JobVars  = []string{"payload", "task"}
	DoneVars = []string{"payload", "task", "result"}
	TickVars = []string{"tick"}

	responseVars = []string{"status", "header", "body", "json", "payload", "task"}

	priorityVars = []string{"payload", "task", "high", "normal", "low"}
)

// zeroValues has a value of each variable's type. payload, result and json can have any type.
var zeroValues = map[string]any{
	"status": 0, "header": func(string) string { return "" }, "body": "", "task": taskNames{}, "tick": time.Time{}, "row": map[string]string{}, "high": "", "normal": "", "low": "",
}

// Tick is a tick of a schedule, in its zone.
type Tick time.Time

func (t Tick) values(map[string]bool) (map[string]any, error) {
	return map[string]any{"tick": time.Time(t)}, nil
}

// Row is a row of a CSV file: the texts of its columns.
type Row map[string]string

// RowVars returns the variables of expressions about a row with the columns.
func RowVars(columns []string) []string {
	vars := []string{"row"}
	for _, name := range columns {
		vars = append(vars, columnVar(name))
	}
	return vars
}

var identifier = regexp.MustCompile(`^[\pL_][\pL\pN_]*$`)

// columnVar returns the value of a column as an expression has it.
func columnVar(name string) string {
	if identifier.MatchString(name) {
		return "row." + name
	}
	return "row[" + strconv.Quote(name) + "]"
}

func (r Row) values(map[string]bool) (map[string]any, error) {
	return map[string]any{"row": map[string]string(r)}, nil
}

// Job is the input of expressions about a job. If no expression uses the payload, the payload can be
// text that is not JSON. A Job is not safe for concurrent use.
type Job struct {
	Type    string
	Queue   string
	ID      string
	Payload []byte

	varValues  map[string]any
	payloadErr error
}

type taskNames struct {
	Type  string `expr:"type"`
	Queue string `expr:"queue"`
	ID    string `expr:"id"`
}

func (j *Job) values(used map[string]bool) (map[string]any, error) {
	if j.varValues == nil {
		j.varValues = map[string]any{"task": taskNames{j.Type, j.Queue, j.ID}, "high": "high", "normal": "normal", "low": "low"}
	}
	if !used["payload"] && !used["$env"] {
		return j.varValues, nil
	}
	if _, decoded := j.varValues["payload"]; !decoded {
		j.varValues["payload"], j.payloadErr = decode("payload", j.Payload)
	}
	return j.varValues, j.payloadErr
}

// Done is a finished job with its result.
type Done struct {
	Job
	// Result is what the handler wrote, JSON or other text.
	Result []byte
	// MustBeJSON means that an expression fails if Result is empty or not JSON.
	MustBeJSON bool

	resultErr error
}

func (d *Done) values(used map[string]bool) (map[string]any, error) {
	env, err := d.Job.values(used)
	if err != nil {
		return nil, err
	}
	if _, decoded := env["result"]; !decoded {
		if env["result"], d.resultErr = decode("result", d.Result); d.resultErr != nil && len(d.Result) > 0 {
			env["result"] = string(d.Result)
		}
	}
	if d.MustBeJSON {
		err = d.resultErr
	}
	return env, err
}

// Response is the response to a job's call.
type Response struct {
	Job
	Status int
	Header http.Header
	Body   func() []byte // not called if no expression uses body or json
}

func (r *Response) values(used map[string]bool) (map[string]any, error) {
	env, err := r.Job.values(used)
	if err != nil {
		return nil, err
	}
	env["status"], env["header"] = r.Status, r.Header.Get
	if used["body"] || used["json"] || used["$env"] {
		env["body"] = string(r.Body())
	}
	if used["json"] || used["$env"] {
		env["json"], _ = decode("body", r.Body()) // null if the body is not JSON
	}
	return env, nil
}

// decode reads one JSON value. Whole numbers stay exact, because they can be keys.
func decode(what string, payload []byte) (any, error) {
	if err := strictjson.CheckDepth("the "+what, payload); err != nil {
		return nil, err
	}
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
	return exactNumbers(value), nil
}

// exactNumbers replaces each json.Number by an int or a float64, or by a text if it is too large for both.
func exactNumbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = exactNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = exactNumbers(inner)
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

var hostFunction = expr.Function("host", func(args ...any) (any, error) {
	return host(args[0])
}, func(any) string { return "" })

// jsonFunction is toJSON on one line. The toJSON of expr indents, so deep values get very long.
var jsonFunction = expr.Function("toJSON", func(args ...any) (any, error) {
	text, err := json.Marshal(args[0])
	return string(text), err
}, func(any) string { return "" })

// host returns the canonical host name of an absolute URL, without its port.
func host(value any) (string, error) {
	text, ok := value.(string)
	if value == nil {
		return "", errors.New("host(…): want a URL, not nothing")
	}
	if !ok {
		return "", fmt.Errorf("host(…): want a URL as text, not %s", describe(value))
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

// hostKey normalizes a host as host(…) does. The text can also be HOST:PORT or a URL.
func hostKey(text string) (string, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return canonical.Host(text)
	}
	whole := text
	if !strings.Contains(text, "://") {
		whole = "//" + text
	}
	u, err := url.Parse(whole)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%.100q is not the name of a host: want one such as example.com", text)
	}
	return canonical.Host(u.Hostname())
}

// describe names the type of a value for errors.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case int, float64:
		return "a number"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", value)
}
