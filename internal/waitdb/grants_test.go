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
