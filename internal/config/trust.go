package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Trust says which limits the other side may shut by a time that it tells, up to their
// longest: in Retry-After, or as the reset of a quota that is used up.
type Trust string

// The values of Task.Trust. Under both a limit that Blocks names is shut: the config
// itself says so.
const (
	// TrustHost are limits of which the host that answers determines the key, as
	// host(payload.url) does: what it says concerns no other host. Other limits are shut
	// as long as after a refusal that tells no time.
	TrustHost Trust = "host"
	// TrustAll are all that a refusal shuts.
	TrustAll Trust = "all"
)

// UnmarshalText reads one of the two words.
func (t *Trust) UnmarshalText(text []byte) error {
	switch *t = Trust(text); *t {
	case TrustHost, TrustAll:
		return nil
	}
	return fmt.Errorf("%q: want host or all", text)
}

// Trusts reports whether a time that an answer tells counts for the limits that the
// task's rule blocks.
func (t Task) Trusts() bool {
	return t.Blocks != nil || t.Trust == TrustAll || len(t.byHost()) > 0
}

// blocks are the limits that a refusal shuts; nil means those with a key, or all.
func (t Task) blocks() []string {
	if t.Blocks != nil || t.Trust == TrustAll {
		return t.Blocks
	}
	return t.byHost()
}

// MaxBlocks is what the limits that an answer may shut allow at most: the one that
// allows least, and the longest that any does. For a type without such limits that is a
// day.
func (c *Config) MaxBlocks(typename string) (least throttle.Limit, longest time.Duration) {
	t := c.Tasks[typename]
	blocks := t.blocks()
	for _, l := range c.Limits {
		needed := slices.ContainsFunc(t.Limits, func(n Need) bool { return n.Limit == l.Name })
		if !needed || blocks != nil && !slices.Contains(blocks, l.Name) {
			continue
		}
		if least.Name == "" || l.LongestBlock() < least.LongestBlock() {
			least = l
		}
		longest = max(longest, l.LongestBlock())
	}
	return least, cmp.Or(longest, throttle.Day)
}

// byHost are the limits whose key the host that is called determines, nil if none.
func (t Task) byHost() []string {
	var limits []string
	for _, n := range t.Limits {
		if n.Key.ByHost() {
			limits = append(limits, n.Limit)
		}
	}
	return limits
}
