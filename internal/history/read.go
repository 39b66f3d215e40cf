package history

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/headgate/headgate/lua"
	"github.com/redis/go-redis/v9"
)

const page = 1000

// Read returns the summaries after the one whose ID is since, oldest first: all
// for "", and for a moment StreamID of it. A quarter of an hour of them is there,
// one a second of each process. What cannot be read as one is left out.
func Read(ctx context.Context, rdb redis.UniversalClient, scope, since string) ([]Summary, error) {
	from := "-"
	if since != "" {
		from = "(" + since
	}
	var all []Summary
	for {
		messages, err := rdb.XRangeN(ctx, lua.Prefix(scope)+"history", from, "+", page).Result()
		if err != nil {
			return all, err
		}
		for _, m := range messages {
			from = "(" + m.ID
			s := Summary{ID: m.ID, At: idTime(m.ID)}
			text, _ := m.Values["s"].(string)
			if json.Unmarshal([]byte(text), &s) == nil {
				all = append(all, s)
			}
		}
		if len(messages) < page {
			return all, nil
		}
	}
}

// Totals is how many jobs of each task have ended in which way since the scope
// began.
func Totals(ctx context.Context, rdb redis.UniversalClient, scope string) (map[Task]Counts, error) {
	fields, err := rdb.HGetAll(ctx, lua.Prefix(scope)+"totals").Result()
	if err != nil {
		return nil, err
	}
	totals := map[Task]Counts{}
	for field, text := range fields {
		task, end, ok := parseField(field)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		counts := totals[task]
		counts[end] = n
		totals[task] = counts
	}
	return totals, nil
}

func parseField(field string) (t Task, end End, ok bool) {
	parts := strings.Split(field, "\n")
	if len(parts) != 3 {
		return t, 0, false
	}
	for _, end := range Ends() {
		if end.String() == parts[2] {
			return Task{parts[0], parts[1]}, end, true
		}
	}
	return t, 0, false
}
