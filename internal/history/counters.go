package history

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/headgate/headgate/throttle"
)

// Task is what jobs are counted by.
type Task struct{ Queue, Type string }

// Other counts what has a name that is one too many, or no name for a label: with
// control characters, wrong UTF-8 or more than 100 bytes.
const Other = "other"

const (
	// maxNames is how many limits, and how many tasks, a Recorder counts by name.
	maxNames = 200
	maxName  = 100 // bytes
)

// End is how an attempt to run a job ended.
type End int

// The ends.
const (
	Done       End = iota
	Failed         // to be tried again
	Archived       // kept in asynq's archive
	Dropped        // deleted, as its handler or its rule said
	PutBack        // without having run: it waits for permits, or for the limiter
	RetryAfter     // by its handler, which spends no attempt
	ends
)

var endTexts = [ends]string{"done", "failed", "archived", "dropped", "put_back", "retry_after"}

// String is the end as labels and totals have it.
func (e End) String() string { return endTexts[e] }

// Ends lists all ends.
func Ends() []End { return []End{Done, Failed, Archived, Dropped, PutBack, RetryAfter} }

const outcomes = int(throttle.TooLate) + 1

type limitCounters struct {
	decisions [outcomes]atomic.Int64
	permits   atomic.Int64
	// unkeyed are those of them without a key, and returned how many of these were
	// given back when their cost was settled.
	unkeyed, returned atomic.Int64
	refused           atomic.Int64 // calls that the other side refused
	retryAfter        *Histogram
	denial            atomic.Pointer[Denial] // the last
}

type taskCounters struct {
	ends     [ends]atomic.Int64
	busy     atomic.Int64
	duration *Histogram
}

type byName[K comparable, C any] struct {
	m     sync.Map
	n     atomic.Int64
	make  func() *C
	other K
}

func (b *byName[K, C]) of(name K) *C {
	if c, ok := b.m.Load(name); ok {
		return c.(*C)
	}
	if name != b.other && b.n.Add(1) > maxNames {
		b.n.Add(-1)
		return b.of(b.other)
	}
	c, loaded := b.m.LoadOrStore(name, b.make())
	if loaded && name != b.other {
		b.n.Add(-1)
	}
	return c.(*C)
}

func (b *byName[K, C]) each(f func(name K, c *C)) {
	b.m.Range(func(name, c any) bool {
		f(name.(K), c.(*C))
		return true
	})
}

// label is a name as a label: itself, or Other.
func label(name string) string {
	if !isLabel(name) {
		return Other
	}
	return name
}

func isLabel(name string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, control)
}
