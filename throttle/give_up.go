package throttle

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// undoPlain gives back what plain calls took whose callers had given up.
func (r *Redis) undoPlain(ctx context.Context, calls []*plainCall) {
	var decisions []Decision
	for _, c := range calls {
		decisions = append(decisions, c.answer.Decision)
	}
	r.giveBack(ctx, decisions)
}

// undoAllows gives back what calls of Allow took whose callers had given up.
func (r *Redis) undoAllows(ctx context.Context, calls []*allowCall) {
	var decisions []Decision
	for _, c := range calls {
		if c.err == nil && c.reply[0].(int64) == int64(Allowed) {
			decisions = append(decisions, decision(c.reply, c.needs, c.holder))
		}
	}
	r.giveBack(ctx, decisions)
}

// giveBack gives back all that decisions took, as far as Settle does: what was taken first goes
// first, and what several took of a meter at one moment goes in one step, so that none of
// them counts as another caller of the rest. After an error the permits stay used, which lets no
// more through.
func (r *Redis) giveBack(ctx context.Context, decisions []Decision) {
	type moment struct {
		meterKey
		us int64
	}
	sums := map[moment]Decision{}
	for _, d := range decisions {
		for _, t := range d.Taken {
			if d.Holder != "" {
				_ = r.Free(ctx, d.Holder, t.Need)
			}
			m := moment{meterKey{t.Limit, t.Key}, d.At.UnixMicro()}
			if sum, found := sums[m]; found {
				t.Cost += sum.Taken[0].Cost
				t.Mark[0] = max(t.Mark[0], sum.Taken[0].Mark[0])
			}
			sums[m] = Decision{At: d.At, Taken: []Taken{t}}
		}
	}
	for _, m := range slices.SortedFunc(maps.Keys(sums), func(a, b moment) int { return cmp.Compare(a.us, b.us) }) {
		_ = r.Settle(ctx, sums[m], m.limit, m.key, 0)
	}
}
