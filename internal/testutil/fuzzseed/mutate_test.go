package fuzzseed

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Inputs are as their seeds are, most are others, and the same are made each time, or
// nobody could find a failure again.
func TestMutated(t *testing.T) {
	f := &F{seeds: [][]any{{"text", []byte("bytes"), uint16(1)}, {"", []byte{}, uint16(2)}}}
	made := func() (all []string) {
		for r := rand.New(rand.NewPCG(1, 2)); len(all) < 500; {
			args := f.mutated(r)
			_, _, _ = args[0].(string), args[1].([]byte), args[2].(uint16)
			all = append(all, fmt.Sprintf("%q", args))
		}
		return all
	}
	again, different := made(), map[string]bool{}
	for i, args := range made() {
		different[args] = true
		if args != again[i] {
			t.Fatalf("input %d is %s, and made again %s", i, args, again[i])
		}
	}
	if len(different) < 250 {
		t.Errorf("of 500 inputs %d are different, want half of them at least", len(different))
	}
}
