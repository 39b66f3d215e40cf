package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// slowest is the timeout of calls to a server under callgrind, which makes it fifty times slower.
const slowest = time.Minute

// callgrind is a redis-server whose instructions are counted.
type callgrind struct {
	server *redistest.Server
	dumps  int
}

func startCallgrind() (*callgrind, error) {
	for _, program := range []string{"valgrind", "callgrind_control"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, errors.New(program + " is not installed: install valgrind, or give --no-kir")
		}
	}
	server, err := redistest.StartUnder([]string{"valgrind", "--tool=callgrind", "--callgrind-out-file=callgrind", "--quiet"},
		"--hz", "1") // so that periodic tasks add few instructions
	return &callgrind{server: server}, err
}

// count returns how many thousand instructions the server has executed since the last count.
func (c *callgrind) count(ctx context.Context) (float64, error) {
	c.dumps++
	out, err := exec.CommandContext(ctx, "callgrind_control", "--dump", strconv.Itoa(c.server.Pid())).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("callgrind_control: %w: %s", err, out)
	}
	file := filepath.Join(c.server.Dir(), fmt.Sprintf("callgrind.%d", c.dumps))
	for deadline := time.Now().Add(slowest); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is not written yet
		}
		_, totals, found := strings.Cut(string(text), "\ntotals: ")
		if number, _, whole := strings.Cut(totals, "\n"); found && whole {
			instructions, err := strconv.ParseFloat(strings.Fields(number)[0], 64)
			return instructions / 1000, err
		}
	}
	return 0, errors.Join(ctx.Err(), errors.New("callgrind wrote no count"))
}
