package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/spare"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type key struct {
	Key      cli.Text   `json:"key"`
	Rate     string     `json:"rate,omitempty"`
	Capacity int        `json:"capacity,omitempty"`
	Source   string     `json:"source,omitempty"`
	Now      string     `json:"now,omitempty"`
	Why      string     `json:"why,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	rest     time.Duration
}

func newKeys(from []throttle.KeyState) []key {
	keys := make([]key, len(from))
	for i, k := range from {
		keys[i] = key{Key: cli.Text(k.Key), Rate: k.Rate.String(), Capacity: k.Capacity, Now: k.Now, Why: why(k), rest: k.For}
		switch {
		case k.File:
			keys[i].Source = "file"
		case k.Override != throttle.Override{}:
			keys[i].Source = "set"
		}
		if !k.Until.IsZero() {
			keys[i].Until = &k.Until
		}
	}
	return keys
}

// why is why a key goes slower than it could.
func why(k throttle.KeyState) string {
	var reasons []string
	if k.Refused > 0 {
		reasons = append(reasons, fmt.Sprintf("refused %d times in a row", k.Refused))
	} else if k.Slowed {
		reasons = append(reasons, "was refused")
	}
	if k.Now != "" && k.Latency > 0 {
		reasons = append(reasons, "latency "+k.Latency.Round(time.Millisecond).String())
	}
	return strings.Join(reasons, ", ")
}

// String is the key, and what it counts by, such as "slow.example: 1/10s for 2h0m0s".
func (k key) String() string {
	text := throttle.Override{Capacity: k.Capacity}.String()
	text = strings.TrimSpace(k.Rate + " " + text)
	if k.rest > 0 {
		text += " for " + in(k.rest)
	}
	if k.Now != "" {
		text = strings.TrimSpace(text + " now " + k.Now)
	}
	if k.Why != "" {
		text = strings.TrimSpace(text + " (" + k.Why + ")")
	}
	return fmt.Sprintf("%s: %s", keyName(string(k.Key)), text)
}

func (c *limitsSet) setKey(ctx context.Context, limiter *lanes.Lanes, stdio cli.IO) error {
	if c.Kind != nil || c.Margin != nil || c.Zone != nil || c.Apps != nil || c.Lease != nil || c.MaxBlock != nil {
		return cli.Usagef("a key has only a rate and a capacity of its own: want --rate or --capacity beside --key, and --for")
	}
	var o throttle.Override
	if assign(&o.For, c.For); c.For != nil && o.For <= 0 {
		return cli.Usagef("--for %s: want how long, such as 2h", o.For)
	}
	assign(&o.Rate, c.Rate)
	assign(&o.Capacity, c.Capacity)
	if !c.Yes {
		if err := spared(spare.CheckKey(ctx, limiter, c.Name, *c.Key, o)); err != nil {
			return err
		}
	}
	if err := limiter.SetKey(ctx, c.Name, *c.Key, o); err != nil {
		return badUnlessDown(err)
	}
	did := confirmation{Done: "set", Limit: c.Name, Key: cli.Text(*c.Key), Definition: o.String()}
	return c.say(stdio.Out, did, fmt.Sprintf("%s of %s  %s", c.Name, keyName(*c.Key), o))
}

type limitsUnset struct {
	Name string `arg:"" help:"Name of the limit."`
	Key  string `arg:"" help:"The key."`
	Yes  bool   `help:"Unset it even if jobs wait that are then refused."`
	confirming
}

func (limitsUnset) Help() string {
	return `What the config file says of the key counts again when the file changes there.`
}

func (c *limitsUnset) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	did := confirmation{Done: "unset", Limit: c.Name, Key: cli.Text(c.Key)}
	return c.change(ctx, g, stdio, did, func(l *lanes.Lanes) error {
		if !c.Yes {
			if err := spared(spare.CheckKey(ctx, l, c.Name, c.Key, throttle.Override{})); err != nil {
				return err
			}
		}
		return l.UnsetKey(ctx, c.Name, c.Key)
	})
}
