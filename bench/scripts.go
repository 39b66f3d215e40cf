package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

type scriptsCommand struct {
	Calls int  `default:"240" help:"How often each script is called."`
	Kir   bool `name:"kir" default:"true" negatable:"" help:"Count instructions under callgrind, which valgrind brings."`
	JSON  bool `name:"json" help:"Print one JSON array."`
}

// scriptRow is the cost of one call of a script.
type scriptRow struct {
	Case     string   `json:"case" table:"case"`
	System   string   `json:"system" table:"system"`
	Scripts  float64  `json:"scripts" table:"scripts,2"`
	Commands float64  `json:"commands" table:"commands,2"` // that the script calls, and the EVALSHA itself
	Kir      *float64 `json:"kir" table:"kIr,1"`           // thousands of instructions of the whole server
	Usec     float64  `json:"usec_per_call" table:"µs,1"`
}

// Run calls each script alone: once on a plain redis-server, for time and commands, and once under
// callgrind, for instructions, whose number differs by some hundredths at most on any machine. The
// last rows are whole jobs: sums of the rows before.
func (c *scriptsCommand) Run(b *bench) error {
	if c.Calls < 240 || c.Calls%rigBatch != 0 {
		return fmt.Errorf("--calls %d: want a multiple of 24, 240 or more", c.Calls)
	}
	rows, err := c.measure(b, b.server, nil)
	if err == nil && c.Kir {
		var program *callgrind
		if program, err = startCallgrind(); err == nil {
			var counted []scriptRow
			counted, err = c.measure(b, program.server, program)
			err = errors.Join(err, program.server.Close())
			for i := range min(len(rows), len(counted)) {
				rows[i].Kir = counted[i].Kir
			}
		}
	}
	if err != nil {
		return err
	}
	return printRows(b, c.JSON, append(rows, ways(rows)...))
}

// measure measures all cases on one server.
func (c *scriptsCommand) measure(b *bench, server *redistest.Server, program *callgrind) ([]scriptRow, error) {
	options := server.Options()
	options.MaxRetries, options.ReadTimeout = -1, slowest
	rdb := redis.NewClient(options)
	defer rdb.Close()
	r := &rig{ctx: b.ctx, rdb: rdb, calls: c.Calls, callgrind: program}
	err := r.walk()
	rows := make([]scriptRow, len(r.tallies))
	for i, t := range r.tallies {
		rows[i] = t.row(program != nil)
	}
	return rows, err
}

// ways returns the rows of jobWays, with the costs of their cases added up.
func ways(rows []scriptRow) []scriptRow {
	var sums []scriptRow
	for _, way := range jobWays {
		sum := scriptRow{Case: way.name, System: way.system}
		for _, step := range way.steps {
			i := slices.IndexFunc(rows, func(r scriptRow) bool { return r.Case == step })
			jobs := 1.0
			if strings.HasSuffix(step, ", 8 jobs") {
				jobs = rigTurns
			}
			sum.Scripts += 1 / jobs
			sum.Commands += rows[i].Commands / jobs
			sum.Usec += rows[i].Usec / jobs
			if kir := rows[i].Kir; kir != nil {
				sum.Kir = new(*cmp.Or(sum.Kir, new(0.0)) + *kir/jobs)
			}
		}
		sums = append(sums, sum)
	}
	return sums
}
