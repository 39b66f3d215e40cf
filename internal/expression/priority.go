package expression

import (
	"fmt"

	"github.com/headgate/headgate/scheduler/lanes"
)

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

// ParsePriority compiles a priority expression.
func ParsePriority(text string) (Priority, error) {
	f, err := compile("priority expression", text, priorityEnv{})
	if err != nil {
		return Priority{}, err
	}
	if f.constant() {
		_, err = Priority{f}.Of(&Job{})
	}
	return Priority{f}, err
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
		if text, ok := value.(string); ok && priority.UnmarshalText([]byte(text)) == nil {
			return priority, nil
		}
		return lanes.Normal, fmt.Errorf("it gives %s: want high, normal or low", quoted(value))
	})
}

// UnmarshalText is ParsePriority, for config files.
func (p *Priority) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePriority(string(text))
	return err
}

func quoted(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return describe(value)
}
