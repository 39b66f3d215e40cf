package expression

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/scheduler/lanes"
)

// Key says under which key a job counts: host(payload.url). The zero Key gives
// the empty key: one meter for all jobs.
type Key struct{ *formula }

// UnmarshalText compiles a key expression.
func (k *Key) UnmarshalText(text []byte) (err error) {
	k.formula, err = compile("key expression", string(text), jobEnv{})
	return err
}

// Of is the job's key. Text, numbers and booleans can be keys, of 1 to 200
// bytes and without control characters.
func (k Key) Of(job *Job) (string, error) {
	if k.formula == nil {
		return "", nil
	}
	return answer(k.formula, job.sees, func(value any) (string, error) {
		key, err := scalar(value)
		if err == nil {
			err = checkKey(key)
		}
		return key, err
	})
}

// ByHost reports whether the host that a job calls determines its key, as in
// host(payload.url): so what that host says of the key concerns no other host.
func (k Key) ByHost() bool { return k.formula != nil && k.byHost }

// maxKey bounds what a payload can make Redis store as a name, in bytes.
const maxKey = 200

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("the key %q… has %d bytes: want at most %d", strings.ToValidUTF8(key[:40], ""), len(key), maxKey)
	case strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("the key %q has a control character in it", key)
	}
	return nil
}

// Cost says how many permits a job takes: 3, or len(payload.items). The zero
// Cost is 1.
type Cost struct{ *formula }

// UnmarshalText compiles a cost expression. One that gives the same for every job
// is checked at once.
func (c *Cost) UnmarshalText(text []byte) (err error) {
	if c.formula, err = compile("cost expression", string(text), jobEnv{}); err == nil && c.constant() {
		_, err = c.Of(&Job{})
	}
	return err
}

// Of is the job's cost, a whole number of at least 1.
func (c Cost) Of(job *Job) (int, error) {
	if c.formula == nil {
		return 1, nil
	}
	return answer(c.formula, job.sees, whole(1, math.MaxInt, "of permits, at least 1"))
}

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

// UnmarshalText compiles such an expression.
func (s *Settle) UnmarshalText(text []byte) (err error) {
	s.formula, err = compile("settle expression", string(text), doneEnv{})
	return err
}

// Of is what the job with that result has cost, a whole number of 0 or more. It
// reports false where nothing is to be settled.
func (s Settle) Of(job *Job, result []byte) (cost int, ok bool, err error) {
	if s.formula == nil {
		return 0, false, nil
	}
	see := func(f *formula) (environment, error) {
		env, err := job.env(f)
		if err != nil {
			return nil, err
		}
		decoded, err := decode("result", result)
		return doneEnv{env, decoded}, err
	}
	cost, err = answer(s.formula, see, whole(0, math.MaxInt, "of permits, 0 or more"))
	return cost, err == nil, err
}

// Priority says how urgent a job is: high, normal or low, or an expression
// that gives one of them, such as payload.paid ? high : low. The zero Priority
// is normal.
type Priority struct{ *formula }

// priorityEnv lets a priority be written without quotes.
type priorityEnv struct {
	jobEnv
	High   string `expr:"high"`
	Normal string `expr:"normal"`
	Low    string `expr:"low"`
}

func (e priorityEnv) with(left *budget) any { e.Left = left; return e }

// UnmarshalText compiles a priority expression. One that gives the same for every job
// is checked at once.
func (p *Priority) UnmarshalText(text []byte) (err error) {
	if p.formula, err = compile("priority expression", string(text), priorityEnv{}); err == nil && p.constant() {
		_, err = p.Of(&Job{})
	}
	return err
}

// Of is the job's priority.
func (p Priority) Of(job *Job) (lanes.Priority, error) {
	if p.formula == nil {
		return lanes.Normal, nil
	}
	see := func(f *formula) (environment, error) {
		env, err := job.env(f)
		return priorityEnv{env, "high", "normal", "low"}, err
	}
	return answer(p.formula, see, func(value any) (priority lanes.Priority, err error) {
		text, ok := value.(string)
		switch {
		case !ok:
			err = fmt.Errorf("it gives %s: want high, normal or low", describe(value))
		case priority.UnmarshalText([]byte(text)) != nil:
			err = fmt.Errorf("it gives %q: want high, normal or low", text)
		}
		return priority, err
	})
}

// Weight says how many turns a job's fairness key has while one of weight 1 has one: 3, or
// payload.paid ? 5 : 1. The zero Weight is 0, which counts as 1.
type Weight struct{ *formula }

// UnmarshalText compiles a weight expression. One that gives the same for every job is
// checked at once.
func (w *Weight) UnmarshalText(text []byte) (err error) {
	if w.formula, err = compile("weight expression", string(text), jobEnv{}); err == nil && w.constant() {
		_, err = w.Of(&Job{})
	}
	return err
}

// Of is the job's weight, a whole number from 1 to 1000.
func (w Weight) Of(job *Job) (int, error) {
	if w.formula == nil {
		return 0, nil
	}
	return answer(w.formula, job.sees, whole(1, turns.MostWeight, fmt.Sprintf("from 1 to %d", turns.MostWeight)))
}

// When says whether something is done about a job that has run: result.ok. The
// zero When is always.
type When struct{ *formula }

// UnmarshalText compiles a condition.
func (w *When) UnmarshalText(text []byte) (err error) {
	w.formula, err = compile("condition", string(text), doneEnv{})
	return err
}

// Of reports whether the condition holds. A field that is not there is false.
func (w When) Of(job *Done) (bool, error) {
	if w.formula == nil {
		return true, nil
	}
	return answer(w.formula, job.env, func(value any) (bool, error) {
		holds, ok := value.(bool)
		if !ok && value != nil {
			return false, fmt.Errorf("it gives %s: want true or false", describe(value))
		}
		return holds, nil
	})
}

// exact is where float64 stops telling one whole number from the next.
const exact = 1 << 53

var errNoField = errors.New("there is no such field in it (or it is null)")

// whole reads a value that is a whole number within bounds; want says which.
func whole(least, most int, want string) func(value any) (int, error) {
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
