package waitdb

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/fairqueue"
)

// Each turn is answered with how many of its lane are granted after it: fewer later on
// would mean that some arrived.
func TestReadResults_Granted(t *testing.T) {
	row := func(values ...any) any { return values }
	granted := func(job string) any { return row(int64(fairqueue.Granted), job, int64(1), int64(250_000)) }
	a, b := fairqueue.Turn{Lane: "q\na|"}, fairqueue.Turn{Lane: "q\nb|"}
	results := readResults([]fairqueue.Turn{a, b, a, a, a}, []any{
		granted("1"), row(int64(fairqueue.Empty)), granted("2"), granted("3"), row(int64(fairqueue.Full)),
		row(int64(5)), row(int64(4)),
	})
	var counts []int
	for _, r := range results {
		counts = append(counts, r.Granted)
	}
	if want := []int{3, 4, 4, 5, 5}; !slices.Equal(counts, want) {
		t.Errorf("granted: %v, want %v", counts, want)
	}
}

// The state of a lane is returned once for all of its turns, beyond what was held in the last
// that was tried.
func TestReadResults_Held(t *testing.T) {
	needs := []any{int64(0), int64(0), int64(1), int64(1_000_000), int64(1), int64(1_000_000), int64(0), int64(1)}
	outcome := func(o fairqueue.Outcome) any { return []any{int64(o)} }
	turn := func(lane string, held ...int64) fairqueue.Turn { return fairqueue.Turn{Lane: lane, Held: held} }
	a, b := "q\na|", "r\na|"
	results := readResults([]fairqueue.Turn{turn(a), turn(a, 3), turn(b, 1), turn(a, 5), turn(b, 2)}, []any{
		outcome(fairqueue.Full), outcome(fairqueue.Refused), outcome(fairqueue.Skipped), outcome(fairqueue.Skipped), outcome(fairqueue.Skipped), needs, needs,
	})
	var held []int64
	for _, r := range results {
		held = append(held, r.Held[0])
	}
	if want := []int64{3, 3, 1, 3, 1}; !slices.Equal(held, want) {
		t.Errorf("held: %v, want %v", held, want)
	}
}
