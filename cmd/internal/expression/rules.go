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

// Expression is a compiled expression with results of type T. The result of the zero Expression is
// the default of the kind K. An Expression is safe for concurrent use.
type Expression[T any, K kind[T]] struct{ *program }

// kind is one use of expressions, such as key or cost.
type kind[T any] interface {
	// properties returns the name for errors, and the value of the zero Expression.
	properties() (name string, allowedVars []string, zeroValue T)
	// convert checks the value of an expression.
	convert(value any) (T, error)
}

// UnmarshalText compiles an expression. It also evaluates a constant expression, and checks the type
// of the result if it is known, to find a wrong value at once.
func (e *Expression[T, K]) UnmarshalText(text []byte) (err error) {
	var k K
	name, vars, _ := k.properties()
	if e.program, err = compile(name, string(text), vars); err != nil {
		return err
	}
	if e.constant() {
		_, err = e.Value(nil)
	} else if sample := e.sample(); sample != nil {
		if _, err = k.convert(sample); err != nil {
			err = e.explain(err)
		}
	}
	return err
}

// Value returns the value for a job. It accepts a nil job if the expression is constant.
func (e Expression[T, K]) Value(job Source) (T, error) {
	var k K
	if e.program == nil {
		_, _, zeroValue := k.properties()
		return zeroValue, nil
	}
	return evaluate(e.program, job, k.convert)
}

// Constant returns the value if it is the same for every job. If it is not, ok is false.
func (e Expression[T, K]) Constant() (value T, ok bool) {
	if e.program != nil && !e.constant() {
		return value, false
	}
	value, err := e.Value(nil)
	return value, err == nil
}

// Key is the key of a limit or of fair queuing, such as host(payload.url). A text, number or boolean
// can be a key. A key has 1 to 200 bytes and no control characters. The zero Key is empty.
type Key = Expression[string, keyKind]

type keyKind struct{}

func (keyKind) properties() (string, []string, string) { return "key expression", JobVars, "" }

const maxKey = 200 // bytes

func (keyKind) convert(value any) (string, error) {
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

// Cost is the number of permits that a job takes, such as 3 or len(payload.items). The zero Cost
// is 1.
type Cost = Expression[int, costKind]

type costKind struct{}

func (costKind) properties() (string, []string, int) { return "cost expression", JobVars, 1 }
func (costKind) convert(value any) (int, error) {
	return integer(value, 1, math.MaxInt, "of permits, at least 1")
}

// Settle is the actual cost of a finished job in permits, such as
// fromJSON(result.body).usage.total_tokens. The zero Settle means that the job keeps its Cost. The
// Value of the zero Settle has no meaning.
type Settle = Expression[int, settleKind]

type settleKind struct{}

func (settleKind) properties() (string, []string, int) { return "settle expression", DoneVars, 0 }
func (settleKind) convert(value any) (int, error) {
	return integer(value, 0, math.MaxInt, "of permits, 0 or more")
}

// Priority is high, normal or low, or an expression such as payload.paid ? high : low. The zero
// Priority is normal.
type Priority = Expression[scheduler.PriorityLevel, priorityKind]

type priorityKind struct{}

func (priorityKind) properties() (string, []string, scheduler.PriorityLevel) {
	return "priority expression", priorityVars, scheduler.PriorityNormal
}

func (priorityKind) convert(value any) (priority scheduler.PriorityLevel, err error) {
	text, ok := value.(string)
	switch {
	case !ok:
		err = fmt.Errorf("the result is %s: want high, normal or low", describe(value))
	case priority.UnmarshalText([]byte(text)) != nil:
		err = fmt.Errorf("the result is %q: want high, normal or low", text)
	}
	return priority, err
}

// Weight is the number of turns that a job's fairness key gets for each turn of a key of weight 1,
// such as 3 or payload.paid ? 5 : 1. The zero Weight is 0, which counts as 1.
type Weight = Expression[int, weightKind]

type weightKind struct{}

func (weightKind) properties() (string, []string, int) { return "weight expression", JobVars, 0 }
func (weightKind) convert(value any) (int, error) {
	return integer(value, 1, fairqueue.MaxKeyWeight, fmt.Sprintf("from 1 to %d", fairqueue.MaxKeyWeight))
}

// When is a condition on a finished job, such as result.ok. If the value is null or a missing
// field, the condition is false. The zero When is true.
type When = Expression[bool, whenKind]

type whenKind struct{}

func (whenKind) properties() (string, []string, bool) { return "condition", DoneVars, true }
func (whenKind) convert(value any) (bool, error)      { return condition(value) }

// ResponseIs is a condition on a response, such as status == 403 && body contains "quota". If the
// value is null or a missing field, the condition is false. The zero ResponseIs is false.
type ResponseIs = Expression[bool, responseKind]

type responseKind struct{}

func (responseKind) properties() (string, []string, bool) { return "condition", responseVars, false }
func (responseKind) convert(value any) (bool, error)      { return condition(value) }

func condition(value any) (bool, error) {
	holds, ok := value.(bool)
	if !ok && value != nil {
		return false, fmt.Errorf("the result is %s: want true or false", describe(value))
	}
	return holds, nil
}

// maxExact is 2^53. A float64 cannot represent every whole number above it.
const maxExact = 1 << 53

var errNoField = errors.New("the field is missing or null")

// integer converts a whole number within bounds. want describes the bounds for errors.
func integer(value any, least, most int, want string) (int, error) {
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
		return 0, fmt.Errorf("the result is %s: want a whole number %s", describe(value), want)
	}
	return 0, fmt.Errorf("the result is %v: want a whole number %s", value, want)
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
	return "", fmt.Errorf("the result is %s: want text, a number or true/false", describe(value))
}
