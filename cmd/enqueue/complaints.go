package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/cli"
)

// complaints tells what is wrong with lines. What is wrong with many of them is
// said about the first, and counted for the others: a file with one mistake on
// each of its lines must not bury it.
type complaints struct {
	out     io.Writer
	lines   int // all that were complained about
	refused int // those of them whose queue has such a job already
	texts   []string
	more    map[string]*repeated
}

// repeated is how often a complaint came again, and where it did so last.
type repeated struct{ count, last int }

const toldRefused = 3

func (c *complaints) add(l line, err error) {
	c.lines++
	_, refused := errors.AsType[*refusedError](err)
	if refused {
		c.refused++
	}
	text := cli.Foreign(err.Error())
	if again := c.more[text]; again != nil {
		again.count++
		again.last = l.number
		return
	}
	if refused && c.refused > toldRefused {
		return // each names another job: how many they are is told at the end
	}
	if c.more == nil {
		c.more = map[string]*repeated{}
	}
	c.more[text] = &repeated{}
	c.texts = append(c.texts, text)
	fmt.Fprintf(c.out, "enqueue: %s%s\n", l.where(), text)
}

// sum says how many more lines each complaint was about.
func (c *complaints) sum() {
	for _, text := range c.texts {
		switch again := c.more[text]; again.count {
		case 0:
		case 1:
			fmt.Fprintf(c.out, "enqueue: line %d as well: %s\n", again.last, text)
		default:
			fmt.Fprintf(c.out, "enqueue: %d more lines, up to line %d: %s\n", again.count, again.last, text)
		}
	}
}
