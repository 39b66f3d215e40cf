package throttle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
)

// plainLimit is what is known of a limit.
type plainLimit struct {
	summary string       // as lua/limits/include/summary.lua writes it
	limit   *activeLimit // nil if it is not plain
	skip    int          // calls that go the long way, since one had to
}

// meter is the meter of a need, by the name of its kind.
func (p plainLimit) meter(need Need) string {
	return string(p.limit.Kind) + ":" + need.Limit + "|" + need.Key
}

// rate is the limit's rate as the meter's state has it.
func (p plainLimit) rate() string {
	return strconv.Itoa(p.limit.Rate.N) + " " + strconv.FormatInt(p.limit.periodUS(), 10)
}

// appendCost appends what a cost stands for, as the script takes it.
func (p plainLimit) appendCost(args []any, cost int) []any {
	n, period := int64(p.limit.Rate.N), p.limit.periodUS()
	aheadUS, ahead := span(int64(p.limit.Capacity-cost), n, period)
	costUS, part := span(int64(cost), n, period)
	parts := ""
	if ahead > 0 || part > 0 {
		parts = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(part, 10)
	}
	return append(args, aheadUS, costUS, parts)
}

// gcra is a meter as the script found it. A state that the script could not use is one of
// which nobody asks.
func (p plainLimit) gcra(state string) *gcra {
	g := &gcra{n: int64(p.limit.Rate.N), period: p.limit.periodUS(), capacity: int64(p.limit.Capacity)}
	tat, rest, _ := strings.Cut(state, " ")
	part, _, _ := strings.Cut(rest, " ")
	g.tat, g.rest = number(tat), number(part)
	return g
}

// parsePlain reads a limit's summary: kind, n, microseconds and capacity, and a mark
// where there is more.
func parsePlain(name, summary string) *plainLimit {
	p := &plainLimit{summary: summary, skip: skipped}
	words := strings.Fields(summary)
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return p
	}
	var numbers [3]int64
	for i, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return p
		}
		numbers[i] = n
	}
	limit := &activeLimit{Limit: Limit{
		Name: name, Kind: Kind(words[0]), Rate: Rate{int(numbers[0]), time.Duration(numbers[1]) * time.Microsecond}, Capacity: int(numbers[2]),
	}}
	if us, _ := span(numbers[2], numbers[0], limit.periodUS()); us < far/2 { // so that no TAT comes near it
		p.skip, p.limit = 0, limit
	}
	return p
}

// plainCall is one call of the plain way.
type plainCall struct {
	needs  []Need
	limits []plainLimit

	decision Decision
	decided  bool // else the whole script must be asked
	err      error
}

// plainBatch is calls of the plain way that are sent in one script: what
// lua/limits/plain.lua takes, and what it said.
type plainBatch struct {
	numbers map[string]int // of meters, by their ID, from 1
	ids     []string
	limits  []plainLimit // of the meters
	rows    []plainRow

	now      int64
	verdicts string
	meters   []*gcra // as the calls that were decided have left them
}

// plainRow is calls in a row that are alike.
type plainRow struct {
	needs  []Need
	meters []int // their numbers
	alike  int
}

// add adds a call, unless it knows a limit otherwise than another one does.
func (b *plainBatch) add(call *plainCall) bool {
	meters := make([]int, len(call.needs))
	for i, need := range call.needs {
		id := call.limits[i].meter(need)
		if b.numbers[id] == 0 {
			b.ids, b.limits = append(b.ids, id), append(b.limits, call.limits[i])
			b.numbers[id] = len(b.ids)
		}
		if meters[i] = b.numbers[id]; b.limits[meters[i]-1].summary != call.limits[i].summary {
			return false
		}
	}
	if n := len(b.rows); n > 0 && slices.Equal(b.rows[n-1].needs, call.needs) {
		b.rows[n-1].alike++
	} else {
		b.rows = append(b.rows, plainRow{call.needs, meters, 1})
	}
	return true
}

// send asks Redis for the verdicts.
func (b *plainBatch) send(ctx context.Context, r *Redis, stamp any) error {
	keys, args := slices.Clone(r.keys), []any{stamp}
	for i, id := range b.ids {
		keys, args = append(keys, r.prefix+"m:"+id), append(args, b.limits[i].limit.Name)
	}
	for _, limit := range b.limits {
		args = append(args, limit.summary)
	}
	for _, limit := range b.limits {
		args = append(args, limit.rate())
	}
	for _, row := range b.rows {
		args = b.append(args, row)
	}
	reply, err := lua.Plain.Run(ctx, r.rdb, keys, args...).Text()
	if err != nil || reply == "" {
		return err
	}
	lines := strings.Split(reply, "\n")
	seconds, rest, _ := strings.Cut(lines[0], " ")
	micros, verdicts, _ := strings.Cut(rest, " ")
	b.now, b.verdicts = number(seconds)*1e6+number(micros), verdicts
	for i, limit := range b.limits {
		b.meters = append(b.meters, limit.gcra(lines[1+i]))
	}
	return nil
}

// append appends a row as the script takes it.
func (b *plainBatch) append(args []any, row plainRow) []any {
	all, head, times := len(row.meters) == len(b.ids) && slices.IsSorted(row.meters), any(""), 1
	switch {
	case !all:
		head, times = len(row.meters), row.alike
	case row.alike > 1:
		head = -row.alike
	}
	for range times {
		args = append(args, head)
		for i, need := range row.needs {
			if !all {
				args = append(args, row.meters[i])
			}
			args = b.limits[row.meters[i]-1].appendCost(args, need.Cost)
		}
	}
	return args
}

// decide has a call know what the script said to the i-th.
func (b *plainBatch) decide(call *plainCall, i int) {
	if i >= len(b.verdicts) || b.verdicts[i] == '?' {
		return
	}
	claims := make([]claim, len(call.needs))
	bind := &claims[0]
	for i, need := range call.needs {
		limit := call.limits[i]
		meter := b.meters[b.numbers[limit.meter(need)]-1]
		claims[i] = claim{need: need, limit: limit.limit, own: limit.limit, now: b.now, meter: meter}
		if claims[i].readyAt() > bind.readyAt() {
			bind = &claims[i]
		}
	}
	call.decided = true
	if b.verdicts[i] == '-' {
		call.decision = bind.decision(Denied)
		return
	}
	call.decision = takeAll(claims)
	if b.verdicts[i] == '=' { // what was taken since is not known
		for i := range call.decision.Taken {
			call.decision.Taken[i].Mark = mark{}
		}
	}
}

// number is what the script has written as one.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
