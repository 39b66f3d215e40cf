package expression

import (
	"errors"
	"fmt"
	"math"
)

// Cost says how many permits a job takes: 3, or len(payload.items). The zero
// Cost is 1.
type Cost struct{ *formula }

// ParseCost compiles a cost expression. One that gives the same for every job
// is checked at once.
func ParseCost(text string) (Cost, error) {
	f, err := compile("cost expression", text, jobEnv{})
	if err != nil {
		return Cost{}, err
	}
	if f.constant() {
		_, err = Cost{f}.Of(&Job{})
	}
	return Cost{f}, err
}

// Of is the job's cost, a whole number of at least 1.
func (c Cost) Of(job *Job) (int, error) {
	if c.formula == nil {
		return 1, nil
	}
	return answer(c.formula, job.sees, func(value any) (int, error) { return permits(value, 1, "at least 1") })
}

// Constant is the cost where it is the same for every job.
func (c Cost) Constant() (int, bool) {
	if c.formula != nil && !c.formula.constant() {
		return 0, false
	}
	cost, err := c.Of(&Job{})
	return cost, err == nil
}

// UnmarshalText is ParseCost, for config files.
func (c *Cost) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCost(string(text))
	return err
}

// permits is a value that is a number of them, at least so many.
func permits(value any, least int, words string) (int, error) {
	switch v := value.(type) {
	case nil:
		return 0, errors.New("there is no such field in it (or it is null)")
	case int:
		if v >= least {
			return v, nil
		}
	case float64:
		if v >= float64(least) && v < exact && v == math.Trunc(v) {
			return int(v), nil
		}
	default:
		return 0, fmt.Errorf("it gives %s: want a whole number of permits, %s", describe(value), words)
	}
	return 0, fmt.Errorf("it gives %v: want a whole number of permits, %s", value, words)
}
