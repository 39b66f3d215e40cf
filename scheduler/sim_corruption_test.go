package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// changeRecords changes something that the scope keeps of who waits, as no script
// would: some of it is gone, or says what cannot be, or something else.
func (w *sim) changeRecords() {
	keys := append(w.hand.left(), "hg:{default}:contended")
	slices.Sort(keys)
	for range between(w.rand, 1, 4) {
		key := keys[w.rand.IntN(len(keys))]
		what := w.spoil(key)
		if what == "" {
			continue
		}
		name := strings.ReplaceAll(strings.TrimPrefix(key, "hg:{default}:"), "\n", " ")
		w.note(simEvent{kind: "records changed", text: fmt.Sprintf("%s: %s", name, what), unheard: true, times: 3})
	}
}

// spoil changes a key, and says how.
func (w *sim) spoil(key string) string {
	ctx, rdb := w.t.Context(), w.hand.limits
	garbage := []string{"", "0", "-5", "1e300", "nonsense", "1\n2\n3", "one\njob1", "one\nlimit0|"}[w.rand.IntN(8)]
	if w.rand.IntN(8) == 0 {
		rdb.Del(ctx, key)
		return "is deleted"
	}
	switch rdb.Type(ctx, key).Val() {
	case "hash":
		fields := rdb.HKeys(ctx, key).Val()
		slices.Sort(fields)
		field := fields[w.rand.IntN(len(fields))]
		switch w.rand.IntN(3) {
		case 0:
			rdb.HDel(ctx, key, field)
			return fmt.Sprintf("%q is deleted", field)
		case 1:
			rdb.HSet(ctx, key, field, garbage)
			return fmt.Sprintf("%q is now %q", field, garbage)
		}
		rdb.HSet(ctx, key, garbage, garbage)
		return fmt.Sprintf("%q is %q", garbage, garbage)
	case "zset":
		members := rdb.ZRange(ctx, key, 0, -1).Val()
		member := members[w.rand.IntN(len(members))]
		score := []float64{-1, 0, 1, 1e15}[w.rand.IntN(4)]
		switch w.rand.IntN(3) {
		case 0:
			rdb.ZRem(ctx, key, member)
			return fmt.Sprintf("%q is deleted", member)
		case 1:
			member = garbage
		}
		rdb.ZAdd(ctx, key, redis.Z{Score: score, Member: member})
		return fmt.Sprintf("%q is at %g", member, score)
	case "set":
		rdb.SAdd(ctx, key, garbage)
		return fmt.Sprintf("has %q", garbage)
	}
	return ""
}
