package expression

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/scheduler"
)

// kind describes one kind of formula.
type kind[T any] struct {
	what  string // for errors
	about Source // with the variables
	zero  T      // the value without a formula
	early bool   // whether a constant formula is checked when it is compiled
	read  func(value any) (T, error)
}

func (k kind[T]) compile(to **formula, text []byte) (err error) {
	if *to, err = compile(k.what, string(text), k.about); err == nil && k.early && (*to).constant() {
		_, err = k.of(*to, k.about)
	}
	return err
}

func (k kind[T]) of(f *formula, from Source) (T, error) {
	if f == nil {
		return k.zero, nil
	}
	return evaluate(f, from, k.read)
}

// Key is the key that a job counts under, such as host(payload.url). The zero Key is the empty key, one
// meter for all jobs.
type Key struct{ *formula }

var keys = kind[string]{what: "key expression", about: &Job{}, read: readKey}

// UnmarshalText compiles a key expression.
func (k *Key) UnmarshalText(text []byte) error { return keys.compile(&k.formula, text) }

// Of returns the job's key: a text, number or boolean of 1 to 200 bytes without control characters.
func (k Key) Of(job *Job) (string, error) { return keys.of(k.formula, job) }

// ByHost reports whether the key depends on the called host, as host(payload.url) does. Then an answer
// of that host concerns no other host's key.
func (k Key) ByHost() bool { return k.formula != nil && k.byHost }

// Spell normalizes a key as the expression does: for host(…), LocalHost:8080 becomes localhost. It
// returns keys of other expressions unchanged.
func (k Key) Spell(key string) (string, error) {
	if k.formula == nil || !k.isHost {
		return key, nil
	}
	return hostKey(key)
}

// Cost is how many permits a job takes, such as 3 or len(payload.items). The zero Cost is 1.
type Cost struct{ *formula }

var costs = kind[int]{what: "cost expression", about: &Job{}, zero: 1, early: true, read: integer(1, math.MaxInt, "of permits, at least 1")}

// UnmarshalText compiles a cost expression.
func (c *Cost) UnmarshalText(text []byte) error { return costs.compile(&c.formula, text) }

// Of returns the job's cost, at least 1.
func (c Cost) Of(job *Job) (int, error) { return costs.of(c.formula, job) }

// Constant returns the cost if it is the same for every job.
func (c Cost) Constant() (int, bool) {
	if c.formula != nil && !c.constant() {
		return 0, false
	}
	cost, err := c.Of(&Job{})
	return cost, err == nil
}

// Settle is the actual cost of a finished job, from its payload and result. The result of an
// http:request has the answer's status and body, so a number in a JSON answer is
// fromJSON(result.body).usage.total_tokens. The zero Settle keeps the cost.
type Settle struct{ *formula }

var settles = kind[int]{what: "settle expression", about: &Done{}, read: integer(0, math.MaxInt, "of permits, 0 or more")}

// UnmarshalText compiles a settle expression.
func (s *Settle) UnmarshalText(text []byte) error { return settles.compile(&s.formula, text) }

// Of returns the actual cost, at least 0. The result must be JSON.
func (s Settle) Of(job *Done) (int, error) { return settles.of(s.formula, jsonDone{job}) }

// IsZero reports whether there is no expression.
func (s Settle) IsZero() bool { return s.formula == nil }

// Priority is high, normal or low, or an expression such as payload.paid ? high : low. The zero
// Priority is normal.
type Priority struct{ *formula }

var priorities = kind[scheduler.PriorityLevel]{what: "priority expression", about: priorityJob{&Job{}}, zero: scheduler.PriorityNormal, early: true, read: readPriority}

// UnmarshalText compiles a priority expression.
func (p *Priority) UnmarshalText(text []byte) error { return priorities.compile(&p.formula, text) }

// Of returns the job's priority.
func (p Priority) Of(job *Job) (scheduler.PriorityLevel, error) {
	return priorities.of(p.formula, priorityJob{job})
}

// Weight is how many turns a job's fairness key gets for each turn of a key of weight 1, such as 3 or
// payload.paid ? 5 : 1. The zero Weight is 0, which counts as 1.
type Weight struct{ *formula }

var weights = kind[int]{what: "weight expression", about: &Job{}, early: true, read: integer(1, fairqueue.MaxKeyWeight, fmt.Sprintf("from 1 to %d", fairqueue.MaxKeyWeight))}

// UnmarshalText compiles a weight expression.
func (w *Weight) UnmarshalText(text []byte) error { return weights.compile(&w.formula, text) }

// Of returns the job's weight, from 1 to 1000.
func (w Weight) Of(job *Job) (int, error) { return weights.of(w.formula, job) }

// When is a condition on a finished job, such as result.ok. The zero When is always true.
type When struct{ *formula }

var conditions = kind[bool]{what: "condition", about: &Done{}, zero: true, read: readCondition}

// UnmarshalText compiles a condition.
func (w *When) UnmarshalText(text []byte) error { return conditions.compile(&w.formula, text) }

// Of reports whether the condition holds. A missing field is false.
func (w When) Of(job *Done) (bool, error) { return conditions.of(w.formula, job) }

// maxKey bounds a key in bytes.
const maxKey = 200

func readKey(value any) (string, error) {
	key, err := scalar(value)
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", errors.New("the key is empty")
	case len(key) > maxKey:
		return "", fmt.Errorf("the key %q… has %d bytes: want at most %d", strings.ToValidUTF8(key[:40], ""), len(key), maxKey)
	case strings.ContainsFunc(key, unicode.IsControl):
		return "", fmt.Errorf("the key %q has a control character in it", key)
	}
	return key, nil
}

func readPriority(value any) (priority scheduler.PriorityLevel, err error) {
	text, ok := value.(string)
	switch {
	case !ok:
		err = fmt.Errorf("it gives %s: want high, normal or low", describe(value))
	case priority.UnmarshalText([]byte(text)) != nil:
		err = fmt.Errorf("it gives %q: want high, normal or low", text)
	}
	return priority, err
}

func readCondition(value any) (bool, error) {
	holds, ok := value.(bool)
	if !ok && value != nil {
		return false, fmt.Errorf("it gives %s: want true or false", describe(value))
	}
	return holds, nil
}

// maxExact is where float64 stops representing all whole numbers.
const maxExact = 1 << 53

var errNoField = errors.New("there is no such field in it (or it is null)")

// integer reads a whole number within bounds. want describes it for errors.
func integer(least, most int, want string) func(value any) (int, error) {
	return func(value any) (int, error) {
		switch v := value.(type) {
		case nil:
			return 0, errNoField
		case int:
			if v >= least && v <= most {
				return v, nil
			}
		case float64:
			if v >= float64(least) && v < maxExact && v == math.Trunc(v) && int(v) <= most {
				return int(v), nil
			}
		default:
			return 0, fmt.Errorf("it gives %s: want a whole number %s", describe(value), want)
		}
		return 0, fmt.Errorf("it gives %v: want a whole number %s", value, want)
	}
}

// scalar formats text, numbers (without exponent) and booleans.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", errNoField
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		if math.IsNaN(v) || math.Abs(v) >= maxExact {
			return "", fmt.Errorf("the number %v is not exact: write it as text in the payload", v)
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("it gives %s: want text, a number or true/false", describe(value))
}
