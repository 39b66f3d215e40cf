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
	env, err := job.env(c.formula)
	if err != nil {
		return 0, c.formula.wrap(err)
	}
	value, err := c.formula.run(env)
	if err != nil {
		return 0, err
	}
	cost, err := permits(value)
	if err != nil {
		return 0, c.formula.wrap(err)
	}
	return cost, nil
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

func permits(value any) (int, error) {
	switch v := value.(type) {
	case nil:
		return 0, errors.New("there is no such field in it (or it is null)")
	case int:
		if v >= 1 {
			return v, nil
		}
	case float64:
		if v >= 1 && v < exact && v == math.Trunc(v) {
			return int(v), nil
		}
	default:
		return 0, fmt.Errorf("it gives %s: want a whole number of permits, at least 1", describe(value))
	}
	return 0, fmt.Errorf("it gives %v: want a whole number of permits, at least 1", value)
}
