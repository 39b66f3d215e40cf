package turns

import "testing"

// Each turn is answered with how many of its lane are called after it: fewer later on
// would mean that some came.
func TestHowManyAreCalledAfterEachTurn(t *testing.T) {
	row := func(values ...any) any { return values }
	called := func(job string) any { return row(int64(Granted), job, int64(1), int64(grantLife)) }
	a, b := Turn{Lane: "q\na|"}, Turn{Lane: "q\nb|"}
	results := readResults([]Turn{a, b, a, a, a}, []any{
		called("1"), row(int64(Empty)), called("2"), called("3"), row(int64(Full)),
		row(int64(5)), row(int64(4)),
	})
	var counts []int
	for _, r := range results {
		counts = append(counts, r.Called)
	}
	same(t, "called", counts, 3, 4, 4, 5, 5)
}
