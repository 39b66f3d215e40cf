package main

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/scheduler/lanes"
)

// needKey asks for the key of a limit that counts by key, if there is none.
// Without it a command would speak of a meter that no job ever uses. Whether a
// limit counts by key is known from the config or, where that does not speak of
// the limit, from what is waited for and blocked.
func needKey(ctx context.Context, g *cli.Globals, limiter *lanes.Lanes, limit, key string) error {
	if key != "" {
		return nil
	}
	keys, keyless, err := keysInConfig(g, limit)
	if err == nil && keys == nil && !keyless {
		keys, keyless, err = keysInRedis(ctx, limiter, limit)
	}
	if err != nil || keyless || keys == nil {
		return err
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) > 3 {
		keys = append(keys[:3], "…")
	}
	return cli.Usagef("limit %s counts by key (%s): name the key after it", limit, strings.Join(keys, ", "))
}

// keysInConfig lists the expressions that give the limit's keys, and reports
// whether it is used without one.
func keysInConfig(g *cli.Globals, limit string) (keys []string, keyless bool, err error) {
	c, err := g.Load()
	if err != nil {
		return nil, false, err
	}
	for _, task := range c.Tasks {
		for _, n := range task.Limits {
			if n.Limit == limit {
				keys = append(keys, n.Key.String())
			}
		}
	}
	return keys, slices.Contains(keys, ""), nil
}

// keysInRedis lists keys of the limit that are waited for or blocked, and reports
// whether the empty one is among them.
func keysInRedis(ctx context.Context, limiter *lanes.Lanes, limit string) (keys []string, keyless bool, err error) {
	wants, err := limiter.Wants(ctx)
	if err != nil {
		return nil, false, err
	}
	blocks, err := limiter.Blocks(ctx, limit)
	if err != nil {
		return nil, false, err
	}
	for _, w := range wants {
		if w.Limit == limit {
			keys = append(keys, w.Key)
		}
	}
	slices.Sort(keys)
	for _, b := range blocks {
		keys = append(keys, b.Key)
	}
	return keys, slices.Contains(keys, ""), nil
}
