package inspect

import (
	"context"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
)

// MissingLimit is a limit that does not exist although jobs wait for it.
type MissingLimit struct {
	Limit string `json:"name"`
	Jobs  int    `json:"jobs"` // number of jobs that wait for the limit
	Hint  string `json:"hint"` // the limit that was probably meant, or the names of those that exist
}

// setMissing sets the limits of the demand that are not among the defined ones.
func (q *Queues) setMissing(ctx context.Context, s *Status, defined []string) error {
	for _, limit := range slices.Sorted(maps.Keys(s.Demand)) {
		if slices.Contains(defined, limit) {
			continue
		}
		jobs, err := q.CountWaiting(ctx, limit, func(shard.Shard) int { return 0 })
		if err != nil {
			return err
		}
		if jobs == 0 { // the demand counts jobs that have left by now
			continue
		}
		_, hint := display.DidYouMean(limit, defined)
		s.Missing = append(s.Missing, MissingLimit{limit, jobs, hint})
	}
	return nil
}
