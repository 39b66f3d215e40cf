// Package fuzzseed runs fuzz targets on inputs made from their seeds during plain go test. The
// inputs are the same each time, and nothing is built for fuzzing.
package fuzzseed

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

// inputs is how many are made for a target: half a second's work for most.
const inputs = 10_000

// F is a fuzz target whose seeds are known.
type F struct {
	*testing.F
	seeds [][]any
}

// More has a target tested with more inputs. One that fails is named by its number,
// seed#123, and found again by -run.
func More(f *testing.F) *F { return &F{F: f} }

// Add adds a seed.
func (f *F) Add(args ...any) {
	f.seeds = append(f.seeds, args)
	f.F.Add(args...)
}

// Fuzz is testing.F's. Whoever fuzzes has better mutations.
func (f *F) Fuzz(target any) {
	f.Helper()
	if fuzzed := flag.Lookup("test.fuzz"); fuzzed == nil || fuzzed.Value.String() == "" {
		r := rand.New(rand.NewPCG(1, uint64(len(f.seeds))))
		for range inputs {
			f.F.Add(f.mutated(r)...)
		}
	}
	f.F.Fuzz(target)
}

// mutated is a seed of which something is changed.
func (f *F) mutated(r *rand.Rand) []any {
	args := slices.Clone(f.seeds[r.IntN(len(f.seeds))])
	for range 1 + r.IntN(4) {
		i := r.IntN(len(args))
		other := f.seeds[r.IntN(len(f.seeds))][i]
		switch arg := args[i].(type) {
		case string:
			args[i] = string(mutated(r, []byte(arg), []byte(other.(string))))
		case []byte:
			args[i] = mutated(r, arg, other.([]byte))
		case uint16:
			args[i] = uint16(r.Uint32()) >> r.IntN(16)
		}
	}
	return args
}

// odd is what readers stumble over.
var odd = []string{
	"\x00", "\xff", "\ufeff", "é", "\u200b", "０", "\r\n", " ", "\t", `"`, `'`, `\`, "%", "%00", "%41", "%zz", "${", "}", "{", "[", "]", "<", ">", "&", "=", ",", ":", ";",
	"/", "//", "..", "@", "#", "?", "*", "$", "-1", "0", "1e300", "NaN", "null", "9223372036854775808", "99999-12-31",
}

// mutated is a text of which a part is cut, doubled or turned round, or another put in.
func mutated(r *rand.Rand, text, other []byte) []byte {
	from := r.IntN(len(text) + 1)
	to := from + r.IntN(min(len(text)-from, 1<<r.IntN(8))+1)
	part := bytes.Clone(text[from:to])
	switch r.IntN(6) {
	case 0:
		part = nil
	case 1:
		part = bytes.Repeat(part, 2+r.IntN(8))
	case 2:
		slices.Reverse(part)
	case 3:
		cut := r.IntN(len(other) + 1)
		part = other[cut : cut+r.IntN(len(other)-cut+1)]
	case 4:
		part = []byte(odd[r.IntN(len(odd))])
	default:
		part = append(part, byte(r.Uint32()))
	}
	return slices.Concat(text[:from], part, text[to:])
}
