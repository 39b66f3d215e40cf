package expression

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
	see := func(f *formula) (environment, error) {
		env, err := job.env(f)
		if err != nil {
			return nil, err
		}
		decoded, err := decode("result", result)
		return resultEnv{env, decoded}, err
	}
	cost, err = answer(s.formula, see, func(value any) (int, error) { return permits(value, 0, "0 or more") })
	return cost, err == nil, err
}

// UnmarshalText is ParseSettle, for config files.
func (s *Settle) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSettle(string(text))
	return err
}
