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

// How a lane stands is said once for all of its turns, beyond what was held in the last
// that was tried.
func TestWhatIsLeftByWhatALaneNeedsNext(t *testing.T) {
	needs := []any{int64(0), int64(0), int64(1), int64(second), int64(1), int64(second), int64(0), int64(1)}
	outcome := func(o Outcome) any { return []any{int64(o)} }
	turn := func(lane string, held ...int64) Turn { return Turn{Lane: lane, Held: held} }
	a, b := "q\na|", "r\na|"
	results := readResults([]Turn{turn(a), turn(a, 3), turn(b, 1), turn(a, 5), turn(b, 2)}, []any{
		outcome(Full), outcome(Refused), outcome(Skipped), outcome(Skipped), outcome(Skipped), needs, needs,
	})
	var held []int64
	for _, r := range results {
		held = append(held, r.Held[0])
	}
	same(t, "held", held, 3, 3, 1, 3, 1)
}
