package throttle

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Blocked is a meter that Block holds shut.
type Blocked struct {
	Limit, Key string
	// Until is when it opens, by Redis's clock, and For is how far off that is.
	Until time.Time
	For   time.Duration
}

// Blocks lists the meters that are held shut now, by limit and key.
func (r *Redis) Blocks(ctx context.Context) ([]Blocked, error) {
	ends, err := r.rdb.HGetAll(ctx, r.prefix+"blocked").Result()
	if err != nil || len(ends) == 0 {
		return nil, unavailable(err)
	}
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var blocks []Blocked
	for meter, end := range ends {
		us, _ := strconv.ParseInt(end, 10, 64)
		until := time.UnixMicro(us)
		if !until.After(now) {
			continue
		}
		limit, key, _ := strings.Cut(meter, "|")
		blocks = append(blocks, Blocked{limit, key, until, until.Sub(now)})
	}
	slices.SortFunc(blocks, func(a, b Blocked) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	})
	return blocks, nil
}
