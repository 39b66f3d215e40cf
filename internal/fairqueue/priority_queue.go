package fairqueue

import (
	"cmp"
	"container/heap"
)

// priorityQueue is a heap whose items can be moved and removed.
type priorityQueue[T any] []*item[T]

// item is an entry of a priorityQueue, ordered by rank, key and tie. The zero item is in no queue.
type item[T any] struct {
	value          T
	rank, key, tie int64
	in             *priorityQueue[T] // nil if it is in no queue
	position       int               // in the heap
}

// put adds p with a key. If p is in the queue already, put changes its key and moves it.
func (s *priorityQueue[T]) put(p *item[T], key int64) {
	if p.key = key; p.in == nil {
		heap.Push(s, p)
	} else {
		heap.Fix(s, p.position)
	}
}

// putBy adds p with a key. If p is in the queue already, putBy can only make its key smaller.
func (s *priorityQueue[T]) putBy(p *item[T], key int64) {
	if p.in == nil || key < p.key {
		s.put(p, key)
	}
}

// remove removes p from its queue, if it is in one.
func (p *item[T]) remove() {
	if p.in != nil {
		heap.Remove(p.in, p.position)
	}
}

// next returns the key of the first item, or the constant never if the queue is empty.
func (s priorityQueue[T]) next() int64 {
	if len(s) == 0 {
		return never
	}
	return s[0].key
}

func (p *item[T]) compare(o *item[T]) int {
	return cmp.Or(cmp.Compare(p.rank, o.rank), cmp.Compare(p.key, o.key), cmp.Compare(p.tie, o.tie))
}

// The methods of [heap.Interface].

func (s priorityQueue[T]) Len() int           { return len(s) }
func (s priorityQueue[T]) Less(i, j int) bool { return s[i].compare(s[j]) < 0 }

func (s priorityQueue[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i, j
}

func (s *priorityQueue[T]) Push(p any) {
	last := p.(*item[T])
	last.in, last.position = s, len(*s)
	*s = append(*s, last)
}

func (s *priorityQueue[T]) Pop() any {
	last := len(*s) - 1
	p := (*s)[last]
	(*s)[last], p.in = nil, nil
	*s = (*s)[:last]
	return p
}
