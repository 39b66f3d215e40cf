package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// pendingList is a queue's list of pending jobs, named by key and number, with its SlotOrder.
type pendingList struct {
	order   SlotOrder
	ids     []string
	weights map[string]int
	count   map[string]int
}

func (l *pendingList) arrive(key string, n int) {
	if l.count == nil {
		l.count = map[string]int{}
	}
	for range n {
		l.count[key]++
		l.ids = append(l.ids, fmt.Sprintf("%s-%d", key, l.count[key]))
	}
}

// look does what a server does with the list.
func (l *pendingList) look(n int) {
	var added []PendingJob
	for _, id := range l.order.Unknown(l.ids) {
		key := keyOf(id)
		added = append(added, PendingJob{ID: id, Key: key, Weight: l.weights[key]})
	}
	l.order.Update(l.ids, added...)
	first, among := l.order.FirstMoved(l.ids, n)
	others := slices.DeleteFunc(slices.Clone(l.ids[:among]), func(id string) bool { return slices.Contains(first, id) })
	l.ids = slices.Concat(first, others, l.ids[among:])
}

// take takes n jobs from the head, and returns their keys.
func (l *pendingList) take(n int) (keys string) {
	n = min(n, len(l.ids))
	for _, id := range l.ids[:n] {
		keys += keyOf(id)
	}
	l.ids = l.ids[n:]
	return keys
}

func keyOf(id string) string {
	key, _, _ := strings.Cut(id, "-")
	return key
}

func TestSlotOrder_Turns(t *testing.T) {
	var l pendingList
	l.arrive("a", 200)
	l.arrive("b", 1)
	if l.look(1000); l.take(4) != "abaa" {
		t.Fatalf("the head is %q", l.ids[:5])
	}
	l.arrive("b", 3)
	l.arrive("c", 3)
	l.look(1000)
	if got := l.take(12); got != "abcabcabcaaa" { // neither has saved up turns
		t.Errorf("then %s", got)
	}

	l = pendingList{weights: map[string]int{"a": 3}}
	l.arrive("b", 40)
	l.arrive("a", 40)
	taken := ""
	for range 40 {
		l.look(1000)
		taken += l.take(1)
	}
	if n := strings.Count(taken, "a"); n < 29 || n > 31 {
		t.Errorf("a has weight 3 and %d of 40 turns, want 30: %s", n, taken)
	}
}

// TestSlotOrder_Properties: with any arrivals and any looks, jobs of a key keep their order, no job is
// lost, and between two turns of a key whose jobs wait, every other key has at most two.
func TestSlotOrder_Properties(t *testing.T) {
	keys := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var l pendingList
		last, turns := map[string]int{}, map[string]int{} // turns: of one key since the last turn of another
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l.arrive(rapid.SampledFrom(keys).Draw(t, "key"), rapid.IntRange(0, 30).Draw(t, "jobs"))
			before := slices.Sorted(slices.Values(l.ids))
			if l.look(1000); !slices.Equal(before, slices.Sorted(slices.Values(l.ids))) {
				t.Fatalf("%v became %v", before, l.ids)
			}
			for range min(len(l.ids), rapid.IntRange(0, 10).Draw(t, "taken")) {
				id := l.ids[0]
				key := l.take(1)
				if number := numberOf(id); number != last[key]+1 {
					t.Fatalf("%s after number %d", id, last[key])
				}
				last[key]++
				for _, other := range keys {
					turns[other+key] = 0
					if !slices.ContainsFunc(l.ids, func(id string) bool { return keyOf(id) == other }) {
						turns[key+other] = 0
					} else if turns[key+other]++; other != key && turns[key+other] > 2 {
						t.Fatalf("%s had %d turns, and now waits: %v", key, turns[key+other], l.ids)
					}
				}
			}
		}
	})
}

func numberOf(id string) (n int) {
	_, number, _ := strings.Cut(id, "-")
	_, _ = fmt.Sscan(number, &n)
	return n
}

// TestSlotOrder_GivenBack: a job that goes back to the head keeps its place in front of its key's jobs.
func TestSlotOrder_GivenBack(t *testing.T) {
	var l pendingList
	l.arrive("a", 6)
	l.arrive("b", 2)
	l.look(1000)
	first := l.ids[0]
	l.take(1)
	l.look(1000)
	l.ids = append([]string{first}, l.ids...)
	l.look(1000)
	if got := slices.Index(l.ids, first); got > 1 || slices.Index(l.ids, "a-2") < got {
		t.Errorf("%s is at %d of %v", first, got, l.ids)
	}
}
