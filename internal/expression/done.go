package expression

import "fmt"

// Done is a job that has run, and what came of it.
type Done struct {
	Job
	// Result is what the handler wrote: JSON, or any other text.
	Result []byte

	read   bool
	result any
}

type doneEnv struct {
	jobEnv
	Result any `expr:"result"`
}

func (e doneEnv) with(left *budget) any { e.Left = left; return e }

func (d *Done) env(f *formula) (environment, error) {
	env, err := d.Job.env(f)
	if err != nil {
		return nil, err
	}
	if !d.read {
		d.read = true
		if d.result, err = decode("result", d.Result); err != nil && len(d.Result) > 0 {
			d.result = string(d.Result)
		}
	}
	return doneEnv{env, d.result}, nil
}

// OfDone is the template's value for a job that has run, as At for a tick.
func (t Template) OfDone(job *Done, quote Quote) (any, error) { return t.fill(job.env, quote) }

// When says whether something is done about a job that has run: result.ok. The
// zero When is always.
type When struct{ *formula }

// ParseWhen compiles a condition.
func ParseWhen(text string) (When, error) {
	f, err := compile("condition", text, doneEnv{})
	return When{f}, err
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

// UnmarshalText is ParseWhen, for config files.
func (w *When) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWhen(string(text))
	return err
}
