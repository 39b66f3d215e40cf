package waitdb

import (
	"slices"

	"github.com/headgate/headgate/internal/fairqueue"
)

// readResults reads what grant.lua replies: a row for each turn, then one for each
// lane in the order in which the turns name them.
func readResults(turns []fairqueue.Turn, rows []any) []fairqueue.Result {
	outlooks := map[string]*outlook{}
	for i, t := range turns {
		lane := outlooks[t.Lane]
		if lane == nil {
			lane = readOutlook(t.Lane, rows[len(turns)+len(outlooks)].([]any))
			outlooks[t.Lane], lane.held = lane, t.Held
		}
		if outcomeOf(rows[i]) != fairqueue.Skipped {
			lane.held = t.Held
		}
	}
	out := make([]fairqueue.Result, len(turns))
	for i, t := range slices.Backward(turns) {
		row, lane := rows[i].([]any), outlooks[t.Lane]
		r := fairqueue.Result{Outcome: outcomeOf(rows[i]), Next: lane.next, Held: lane.held, MaxAdvance: lane.ahead, Granted: lane.called}
		if len(row) > 1 {
			r.Job, r.At, r.Until = row[1].(string), row[2].(int64), row[3].(int64)
			r.TakesEarly = len(row) > 4 && row[4].(int64) == 1
			lane.called-- // as before this turn
		}
		out[i] = r
	}
	return out
}

func outcomeOf(row any) fairqueue.Outcome { return fairqueue.Outcome(row.([]any)[0].(int64)) }

// An outlook is how a lane stands after a batch of turns.
type outlook struct {
	called int
	next   []fairqueue.Need // of its first job; nil where none waits
	held   []int64          // what next leaves
	ahead  int64            // how far that job may be called
}

func readOutlook(lane string, row []any) *outlook {
	number := func(i int) int64 { return row[i].(int64) }
	o := &outlook{called: int(number(0))}
	switch {
	case len(row) == 1:
		return o
	case len(row) == 2: // its next turn is to learn that a limit is gone
		for _, meter := range fairqueue.Meters(lane) {
			o.next = append(o.next, fairqueue.Need{Meter: meter, Known: true})
		}
		return o
	}
	o.ahead = number(1)
	for i, meter := range fairqueue.Meters(lane) {
		at := 2 + 6*i
		o.next = append(o.next, fairqueue.Need{
			Meter: meter, Cost: number(at), Ready: number(at + 1), Known: number(at+2) == 1,
			Refill: number(at + 3), Blocked: number(at+4) == 1, PerRefill: number(at + 5),
		})
	}
	return o
}
