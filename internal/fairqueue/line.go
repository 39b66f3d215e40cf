package fairqueue

import (
	"cmp"
	"container/heap"
)

// line is what stands in order of a key: lanes by their last turn, meters by
// when they are due. What stands in it knows its place, and can leave or move.
type line[T any] []*place[T]

// place is a place in a line. Its zero value stands in none.
type place[T any] struct {
	of T
	// What stands here comes by rank, then by key, then by tie.
	rank, key, tie int64
	// position counts from one; zero is nowhere.
	position int
}

// put has p stand in the line by a key, whether it stood there or not.
func (l *line[T]) put(p *place[T], key int64) {
	p.key = key
	if p.position == 0 {
		heap.Push(l, p)
	} else {
		heap.Fix(l, p.position-1)
	}
}

// remove takes p out of the line if it stands there.
func (l *line[T]) remove(p *place[T]) {
	if p.position > 0 {
		heap.Remove(l, p.position-1)
	}
}

// due returns the first of the line if its key is not after now.
func (l line[T]) due(now int64) (first T, ok bool) {
	if len(l) == 0 || l[0].key > now {
		return first, false
	}
	return l[0].of, true
}

// next is the key of the first, never if there is none.
func (l line[T]) next() int64 {
	if len(l) == 0 {
		return never
	}
	return l[0].key
}

// compare is negative where p comes before o.
func (p *place[T]) compare(o *place[T]) int {
	return cmp.Or(cmp.Compare(p.rank, o.rank), cmp.Compare(p.key, o.key), cmp.Compare(p.tie, o.tie))
}

// The methods of [heap.Interface].

func (l line[T]) Len() int           { return len(l) }
func (l line[T]) Less(i, j int) bool { return l[i].compare(l[j]) < 0 }

func (l line[T]) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].position, l[j].position = i+1, j+1
}

func (l *line[T]) Push(p any) {
	*l = append(*l, p.(*place[T]))
	(*l)[len(*l)-1].position = len(*l)
}

func (l *line[T]) Pop() any {
	last := len(*l) - 1
	p := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	p.position = 0
	return p
}
