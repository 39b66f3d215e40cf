// Package fuzzseed runs fuzz targets on mutations of their seeds in plain go test. The mutations are the
// same each time.
package fuzzseed

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

// mutations is the number of mutations for a target. Most targets take half a second for them.
const mutations = 10_000

// F is a fuzz target with seeds.
type F struct {
	*testing.F
	seeds [][]any
}

// More adds mutations to the seeds of a target. A mutation has a name for -run, such as seed#123.
func More(f *testing.F) *F { return &F{F: f} }

// Add adds a seed.
func (f *F) Add(args ...any) {
	f.seeds = append(f.seeds, args)
	f.F.Add(args...)
}

// Fuzz is [testing.F.Fuzz]. It adds the mutations, except with -fuzz.
func (f *F) Fuzz(target any) {
	f.Helper()
	if fuzzed := flag.Lookup("test.fuzz"); fuzzed == nil || fuzzed.Value.String() == "" {
		r := rand.New(rand.NewPCG(1, uint64(len(f.seeds))))
		for range mutations {
			f.F.Add(f.mutatedSeed(r)...)
		}
	}
	f.F.Fuzz(target)
}

// mutatedSeed returns a changed copy of a seed.
func (f *F) mutatedSeed(r *rand.Rand) []any {
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

// odd are texts that parsers may get wrong.
var odd = []string{
	"\x00", "\xff", "\ufeff", "é", "\u200b", "０", "\r\n", " ", "\t", `"`, `'`, `\`, "%", "%00", "%41", "%zz", "${", "}", "{", "[", "]", "<", ">", "&", "=", ",", ":", ";",
	"/", "//", "..", "@", "#", "?", "*", "$", "-1", "0", "1e300", "NaN", "null", "9223372036854775808", "99999-12-31",
}

// mutated returns a text with a part removed, repeated, reversed or replaced.
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
