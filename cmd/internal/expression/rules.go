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

// kind is what formulas of one kind have in common.
type kind[T any] struct {
	what   string // for errors
	about  Source
	unsaid T    // what it is without a formula
	early  bool // whether a formula that gives the same for every job is checked at once
	read   func(value any) (T, error)
}

func (k kind[T]) compile(to **formula, text []byte) (err error) {
	if *to, err = compile(k.what, string(text), k.about); err == nil && k.early && (*to).constant() {
		_, err = k.of(*to, k.about)
	}
	return err
}

func (k kind[T]) of(f *formula, from Source) (T, error) {
	if f == nil {
		return k.unsaid, nil
	}
	return answer(f, from, k.read)
}

// Key says under which key a job counts: host(payload.url). The zero Key gives
// the empty key: one meter for all jobs.
type Key struct{ *formula }

var keys = kind[string]{what: "key expression", about: &Job{}, read: readKey}

// UnmarshalText compiles a key expression.
func (k *Key) UnmarshalText(text []byte) error { return keys.compile(&k.formula, text) }

// Of is the job's key. Text, numbers and booleans can be keys, of 1 to 200
// bytes and without control characters.
func (k Key) Of(job *Job) (string, error) { return keys.of(k.formula, job) }

// ByHost reports whether the host that a job calls determines its key, as in
// host(payload.url): so what that host says of the key concerns no other host.
func (k Key) ByHost() bool { return k.formula != nil && k.byHost }

// Spell is a key in the spelling in which the expression gives it: of host(…), LocalHost:8080 is
// localhost. A key of any other expression is itself. The error is that of a text that is no host.
func (k Key) Spell(key string) (string, error) {
	if k.formula == nil || !k.isHost {
		return key, nil
	}
	return hostKey(key)
}

// Cost says how many permits a job takes: 3, or len(payload.items). The zero
// Cost is 1.
type Cost struct{ *formula }

var costs = kind[int]{what: "cost expression", about: &Job{}, unsaid: 1, early: true, read: integer(1, math.MaxInt, "of permits, at least 1")}

// UnmarshalText compiles a cost expression.
func (c *Cost) UnmarshalText(text []byte) error { return costs.compile(&c.formula, text) }

// Of is the job's cost, a whole number of at least 1.
func (c Cost) Of(job *Job) (int, error) { return costs.of(c.formula, job) }

// Constant is the cost where it is the same for every job.
func (c Cost) Constant() (int, bool) {
	if c.formula != nil && !c.constant() {
		return 0, false
	}
	cost, err := c.Of(&Job{})
	return cost, err == nil
}

// Settle says what a job has truly cost, by its payload and its result: that of
// http:request has the answer's status and body, so a number in an answer in JSON is
// fromJSON(result.body).usage.total_tokens. The zero Settle leaves the cost as it is.
type Settle struct{ *formula }

var settles = kind[int]{what: "settle expression", about: &Done{}, read: integer(0, math.MaxInt, "of permits, 0 or more")}

// UnmarshalText compiles such an expression.
func (s *Settle) UnmarshalText(text []byte) error { return settles.compile(&s.formula, text) }

// Of is what the job has cost, a whole number of 0 or more. Its result must be JSON.
func (s Settle) Of(job *Done) (int, error) { return settles.of(s.formula, answered{job}) }

// IsZero reports whether nothing is to be settled.
func (s Settle) IsZero() bool { return s.formula == nil }

// Priority says how urgent a job is: high, normal or low, or an expression
// that gives one of them, such as payload.paid ? high : low. The zero Priority
// is normal.
type Priority struct{ *formula }

var priorities = kind[scheduler.PriorityLevel]{what: "priority expression", about: urgency{&Job{}}, unsaid: scheduler.PriorityNormal, early: true, read: readPriority}

// UnmarshalText compiles a priority expression.
func (p *Priority) UnmarshalText(text []byte) error { return priorities.compile(&p.formula, text) }

// Of is the job's priority.
func (p Priority) Of(job *Job) (scheduler.PriorityLevel, error) {
	return priorities.of(p.formula, urgency{job})
}

// Weight says how many turns a job's fairness key has while one of weight 1 has one: 3, or
// payload.paid ? 5 : 1. The zero Weight is 0, which counts as 1.
type Weight struct{ *formula }

var weights = kind[int]{what: "weight expression", about: &Job{}, early: true, read: integer(1, fairqueue.MaxKeyWeight, fmt.Sprintf("from 1 to %d", fairqueue.MaxKeyWeight))}

// UnmarshalText compiles a weight expression.
func (w *Weight) UnmarshalText(text []byte) error { return weights.compile(&w.formula, text) }

// Of is the job's weight, a whole number from 1 to 1000.
func (w Weight) Of(job *Job) (int, error) { return weights.of(w.formula, job) }

// When says whether something is done about a job that has run: result.ok. The
// zero When is always.
type When struct{ *formula }

var conditions = kind[bool]{what: "condition", about: &Done{}, unsaid: true, read: readCondition}

// UnmarshalText compiles a condition.
func (w *When) UnmarshalText(text []byte) error { return conditions.compile(&w.formula, text) }

// Of reports whether the condition holds. A field that is not there is false.
func (w When) Of(job *Done) (bool, error) { return conditions.of(w.formula, job) }

// maxKey bounds what a payload can make Redis store as a name, in bytes.
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

// exact is where float64 stops telling one whole number from the next.
const exact = 1 << 53

var errNoField = errors.New("there is no such field in it (or it is null)")

// integer reads a value that is a whole number within bounds; want says which.
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
			if v >= float64(least) && v < exact && v == math.Trunc(v) && int(v) <= most {
				return int(v), nil
			}
		default:
			return 0, fmt.Errorf("it gives %s: want a whole number %s", describe(value), want)
		}
		return 0, fmt.Errorf("it gives %v: want a whole number %s", value, want)
	}
}

// scalar writes text, numbers (without exponent) and booleans as text.
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
		if math.IsNaN(v) || math.Abs(v) >= exact {
			return "", fmt.Errorf("the number %v is not exact: write it as text in the payload", v)
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("it gives %s: want text, a number or true/false", describe(value))
}
