package expression

import (
	"errors"
	"fmt"
	"math"

	"github.com/headgate/headgate/internal/turns"
)

// Weight says how many turns a job's fairness key has while one of weight 1 has one: 3, or
// payload.paid ? 5 : 1. The zero Weight is 0, which counts as 1.
type Weight struct{ *formula }

// ParseWeight compiles a weight expression. One that gives the same for every job is
// checked at once.
func ParseWeight(text string) (Weight, error) {
	f, err := compile("weight expression", text, jobEnv{})
	if err != nil {
		return Weight{}, err
	}
	if f.constant() {
		_, err = Weight{f}.Of(&Job{})
	}
	return Weight{f}, err
}

// Of is the job's weight, a whole number from 1 to 1000.
func (w Weight) Of(job *Job) (int, error) {
	if w.formula == nil {
		return 0, nil
	}
	env, err := job.env(w.formula)
	if err != nil {
		return 0, w.formula.wrap(err)
	}
	value, err := w.formula.run(env)
	if err != nil {
		return 0, err
	}
	weight, err := weight(value)
	if err != nil {
		return 0, w.formula.wrap(err)
	}
	return weight, nil
}

// UnmarshalText is ParseWeight, for config files.
func (w *Weight) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWeight(string(text))
	return err
}

func weight(value any) (int, error) {
	switch v := value.(type) {
	case nil:
		return 0, errors.New("there is no such field in it (or it is null)")
	case int:
		value = float64(v)
	case float64:
	default:
		return 0, fmt.Errorf("it gives %s: want a whole number from 1 to %d", describe(value), turns.MostWeight)
	}
	if v := value.(float64); v >= 1 && v <= turns.MostWeight && v == math.Trunc(v) {
		return int(v), nil
	}
	return 0, fmt.Errorf("it gives %v: want a whole number from 1 to %d", value, turns.MostWeight)
}
