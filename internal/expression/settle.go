package expression

import (
	"errors"
	"fmt"
	"math"
)

// Settle says what a job has truly cost, by its payload and its result: that of
// http:request has the answer's status and body, so a number in an answer in JSON is
// fromJSON(result.body).usage.total_tokens. The zero Settle leaves the cost as it is.
type Settle struct{ *formula }

type resultEnv struct {
	jobEnv
	Result any `expr:"result"`
}

func (e resultEnv) with(left *budget) any { e.Left = left; return e }

// ParseSettle compiles such an expression.
func ParseSettle(text string) (Settle, error) {
	f, err := compile("settle expression", text, resultEnv{})
	return Settle{f}, err
}

// Of is what the job with that result has cost, a whole number of 0 or more. It
// reports false where nothing is to be settled.
func (s Settle) Of(job *Job, result []byte) (cost int, ok bool, err error) {
	if s.formula == nil {
		return 0, false, nil
	}
	env, err := job.env(s.formula)
	if err != nil {
		return 0, false, s.formula.wrap(err)
	}
	decoded, err := decode("result", result)
	if err != nil {
		return 0, false, s.formula.wrap(err)
	}
	value, err := s.formula.run(resultEnv{env, decoded})
	if err != nil {
		return 0, false, err
	}
	if cost, err = spent(value); err != nil {
		return 0, false, s.formula.wrap(err)
	}
	return cost, true, nil
}

// UnmarshalText is ParseSettle, for config files.
func (s *Settle) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSettle(string(text))
	return err
}

func spent(value any) (int, error) {
	switch v := value.(type) {
	case nil:
		return 0, errors.New("there is no such field in it (or it is null)")
	case int:
		if v >= 0 {
			return v, nil
		}
	case float64:
		if v >= 0 && v < exact && v == math.Trunc(v) {
			return int(v), nil
		}
	default:
		return 0, fmt.Errorf("it gives %s: want a whole number of permits, 0 or more", describe(value))
	}
	return 0, fmt.Errorf("it gives %v: want a whole number of permits, 0 or more", value)
}
