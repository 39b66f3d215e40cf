package demo

import (
	"fmt"
	"io"
	"strconv"

	"github.com/headgate/headgate/internal/cli"
)

// Result is what the demo found.
type Result struct {
	Jobs             int     `json:"jobs"`
	Done             int     `json:"done"`
	RanTwice         int     `json:"ran_twice"`
	DenialsPerJob    float64 `json:"denials_per_job"`
	BusiestSecond    int     `json:"busiest_second"`
	AllowedPerSecond int     `json:"allowed_per_second"`
	HTTP429          int     `json:"http_429"`
	Elapsed          float64 `json:"elapsed_s"`
	Ideal            float64 `json:"ideal_s"`

	busiestAccount, allowedPerAccount int
}

// Good is whether the API had nothing to refuse and every job ran once.
func (r Result) Good() bool {
	return r.Done == r.Jobs && r.RanTwice == 0 && r.HTTP429 == 0 &&
		r.BusiestSecond <= r.AllowedPerSecond && r.busiestAccount <= r.allowedPerAccount
}

// Print writes the result as a table, with a verdict under it.
func (r Result) Print(w io.Writer) error {
	rows := [][]string{
		{"jobs done", fmt.Sprintf("%d of %d", r.Done, r.Jobs), "all, each once"},
		{"jobs that ran twice", strconv.Itoa(r.RanTwice), "0"},
		{"denials per job", fmt.Sprintf("%.2f", r.DenialsPerJob), "at most about 1"},
		{"the API's busiest second", fmt.Sprintf("%d calls", r.BusiestSecond), fmt.Sprintf("at most %d", r.AllowedPerSecond)},
		{"an account's busiest second", fmt.Sprintf("%d calls", r.busiestAccount), fmt.Sprintf("at most %d", r.allowedPerAccount)},
		{"answers 429", strconv.Itoa(r.HTTP429), "0"},
		{"time", fmt.Sprintf("%.2f s", r.Elapsed), fmt.Sprintf("little more than %.2f s", r.Ideal)},
	}
	if err := cli.Table(w, []string{"", "MEASURED", "WANTED"}, rows); err != nil {
		return err
	}
	verdict := "The API had nothing to refuse, and every job ran once."
	if !r.Good() {
		verdict = "Something went wrong: see the table."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}
