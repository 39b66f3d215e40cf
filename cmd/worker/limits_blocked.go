package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type block struct {
	Key   cli.Text  `json:"key"`
	Until time.Time `json:"until"`
	rest  time.Duration
}

func newBlocks(from []throttle.Blocked) []block {
	blocks := make([]block, len(from))
	for i, b := range from {
		blocks[i] = block{cli.Text(b.Key), b.Until, b.For}
	}
	return blocks
}

// String is the key, and when it opens.
func (b block) String() string { return fmt.Sprintf("%s for %s", keyName(string(b.Key)), in(b.rest)) }

// state is why a limit hands out less than it says, in few words.
func (d definition) state() string {
	switch {
	case d.Paused:
		return "paused"
	case len(d.Blocked) == 1:
		return "blocked: " + d.Blocked[0].String()
	case len(d.Blocked) > 1:
		return fmt.Sprintf("blocked: %d keys", len(d.Blocked))
	case len(d.Keys) == 1:
		return "key " + d.Keys[0].String()
	case len(d.Keys) > 1:
		return fmt.Sprintf("%d keys of their own", len(d.Keys))
	}
	return ""
}
