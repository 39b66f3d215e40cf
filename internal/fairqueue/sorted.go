package fairqueue

import (
	"cmp"
	"container/heap"
)

// sorted is a priority queue. Its items know their position, so they can leave or move.
type sorted[T any] []*item[T]

// item is one entry of a sorted queue, by rank, then key, then tie. Its zero value is in none.
type item[T any] struct {
	value          T
	rank, key, tie int64
	position       int // counts from one; zero is nowhere
}

// put adds p by a key, or moves it.
func (s *sorted[T]) put(p *item[T], key int64) {
	p.key = key
	if p.position == 0 {
		heap.Push(s, p)
	} else {
		heap.Fix(s, p.position-1)
	}
}

// remove takes p out if it is there.
func (s *sorted[T]) remove(p *item[T]) {
	if p.position > 0 {
		heap.Remove(s, p.position-1)
	}
}

// next returns the key of the first item, never if there is none.
func (s sorted[T]) next() int64 {
	if len(s) == 0 {
		return never
	}
	return s[0].key
}

func (p *item[T]) compare(o *item[T]) int {
	return cmp.Or(cmp.Compare(p.rank, o.rank), cmp.Compare(p.key, o.key), cmp.Compare(p.tie, o.tie))
}

// The methods of [heap.Interface].

func (s sorted[T]) Len() int           { return len(s) }
func (s sorted[T]) Less(i, j int) bool { return s[i].compare(s[j]) < 0 }

func (s sorted[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i+1, j+1
}

func (s *sorted[T]) Push(p any) {
	*s = append(*s, p.(*item[T]))
	(*s)[len(*s)-1].position = len(*s)
}

func (s *sorted[T]) Pop() any {
	last := len(*s) - 1
	p := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	p.position = 0
	return p
}
