package crawlsite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// host is what one host was asked. Its answers are counted by path, but those that were
// not found.
type host struct {
	Row
	at       []time.Time
	until    time.Time // for which it refuses
	answered map[string]int
}

func (h *host) note(at time.Time, busy bool) time.Duration {
	h.at = append(h.at, at)
	switch {
	case at.Before(h.until):
		h.Early++
	case busy && len(h.at)%refusedEvery == 0:
		h.until = at.Add(retryAfter)
	default:
		return 0
	}
	h.Refused++
	return h.until.Sub(at)
}

// Row is what one host was asked.
type Row struct {
	Host     string
	Pages    int // fetched
	Missed   int // pages that nobody fetched
	Twice    int // pages and redirects that were fetched again
	Requests int
	Refused  int // answered with 429
	Early    int // of them, those that came before the time that one before had been told
	// Disallowed is how many requests were for what robots.txt disallows.
	Disallowed int
	// Least is the smallest interval between two requests, and Limit what it should
	// be at least.
	Least, Limit time.Duration

	first, last time.Time
	intervals   []time.Duration
}

// Bound is the least time in which the host lets so many requests through.
func (r Row) Bound() time.Duration { return time.Duration(r.Requests-1) * r.Limit }

// Report is what all hosts were asked.
type Report struct {
	Rows []Row
	// Strays is how many requests were for hosts that the pages lead to and no
	// crawl is to go to.
	Strays int
	// Took is the time from the first request to the last.
	Took time.Duration
	// Late is how late at worst this machine let a process go on meanwhile whose
	// time had come. By as much can two requests arrive nearer than they left.
	Late time.Duration
}

// Report is what the hosts have been asked so far.
func (s *Site) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := Report{Strays: s.strays, Late: s.late}
	var first, last time.Time
	for _, name := range Hosts {
		r := s.hosts[name].row(s.pages)
		if r.Requests > 0 && (first.IsZero() || r.first.Before(first)) {
			first = r.first
		}
		if r.last.After(last) {
			last = r.last
		}
		report.Rows = append(report.Rows, r)
	}
	report.Took = last.Sub(first)
	return report
}

func (h *host) row(pages int) Row {
	at := slices.SortedFunc(slices.Values(h.at), time.Time.Compare)
	r := h.Row
	r.Requests = len(at)
	for i := 1; i < len(at); i++ {
		r.intervals = append(r.intervals, at[i].Sub(at[i-1]))
	}
	if len(at) > 1 {
		r.Least = slices.Min(r.intervals)
	}
	if len(at) > 0 {
		r.first, r.last = at[0], at[len(at)-1]
	}
	for i := range pages {
		if h.answered[path(i)] == 0 {
			r.Missed++
		}
	}
	r.Pages = pages - r.Missed
	for of, n := range h.answered {
		if of != "/robots.txt" && n > 1 {
			r.Twice += n - 1
		}
	}
	return r
}

// Wrong says what no crawler should do, however fast or slow it is.
func (r Report) Wrong() (wrong []string) {
	add := func(n int, text, of string) {
		if n > 0 {
			wrong = append(wrong, strings.TrimSpace(fmt.Sprintf("%d %s %s", n, text, of)))
		}
	}
	for _, row := range r.Rows {
		add(row.Missed, "pages missed on", row.Host)
		add(row.Twice, "pages fetched again on", row.Host)
		add(row.Disallowed, "requests for what is disallowed on", row.Host)
	}
	add(r.Strays, "requests to hosts that the crawl should not go to", "")
	return wrong
}

// Undercut says which hosts saw requests nearer to each other than their limit, by
// more than a tolerance and Late, and how often that was.
func (r Report) Undercut(tolerance time.Duration) (wrong []string, n int) {
	for _, row := range r.Rows {
		short := 0
		for _, interval := range row.intervals {
			if interval < row.Limit-tolerance-r.Late {
				short++
			}
		}
		if short > 0 {
			wrong = append(wrong, fmt.Sprintf("%d intervals between requests to %s are too short, such as %s: want %s or more", short, row.Host, row.Least.Round(time.Millisecond/10), row.Limit))
			n += short
		}
	}
	return wrong, n
}

// Slowest is the host with the largest Bound.
func (r Report) Slowest() Row {
	return slices.MaxFunc(r.Rows, func(a, b Row) int { return cmp.Compare(a.Bound(), b.Bound()) })
}
