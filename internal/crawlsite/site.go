// Package crawlsite is a small web that crawlers are measured on: five hosts
// behind one loopback port, which is an HTTP proxy for their names, and a record
// of what each was asked and when.
package crawlsite

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The names of the hosts.
const (
	Plain  = "plain.test"  // with a sitemap, in which alone a quarter of its pages is
	Slow   = "slow.test"   // takes its time for each answer
	Robots = "robots.test" // with a Crawl-delay, and a part that is disallowed
	Busy   = "busy.test"   // answers 429 with Retry-After now and then
	Moved  = "moved.test"  // redirects to its own pages, and to some of Plain's
)

// Seed is where a crawl begins; it leads to all pages.
const Seed = "http://" + Plain + "/"

// Sitemap is Plain's, which its robots.txt names.
const Sitemap = Seed + "sitemap.xml"

// limits say how much later than one request the next may come. Where a crawler is
// not told, it is told by robots.txt.
var limits = map[string]time.Duration{
	Plain: 200 * time.Millisecond, Slow: 400 * time.Millisecond, Robots: 300 * time.Millisecond,
	Busy: 200 * time.Millisecond, Moved: 200 * time.Millisecond,
}

// Limit is how much later than one request to a host the next may come.
func Limit(host string) time.Duration { return limits[host] }

// Hosts are the hosts' names, in the order of a Report.
var Hosts = []string{Plain, Slow, Robots, Busy, Moved}

const (
	latency      = 250 * time.Millisecond // of Slow
	refusedEvery = 20                     // requests to Busy
	retryAfter   = time.Second            // that it then asks for
)

// Site is the servers of all hosts.
type Site struct {
	pages   int
	listen  net.Listener
	server  *http.Server
	answers http.ServeMux

	mu     sync.Mutex
	hosts  map[string]*host
	strays int
	late   time.Duration // the worst of feel
	closed chan struct{}
}

// Start serves so many pages on each host, until Close.
func Start(pages int) (*Site, error) {
	if pages < 1 {
		return nil, fmt.Errorf("%d pages on each host: want 1 or more", pages)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Site{pages: pages, listen: listen, hosts: map[string]*host{}, closed: make(chan struct{})}
	for _, name := range Hosts {
		s.hosts[name] = &host{Row: Row{Host: name, Limit: limits[name]}, answered: map[string]int{}}
	}
	s.answer()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(listen) }() // it ends with Close
	go s.feel()
	return s, nil
}

// Close ends the servers.
func (s *Site) Close() error {
	close(s.closed)
	return s.server.Close()
}

// feel finds out how late this machine lets a process go on whose time has come.
func (s *Site) feel() {
	const every = 5 * time.Millisecond
	for {
		due := time.Now().Add(every)
		select {
		case <-s.closed:
			return
		case <-time.After(every):
			late := time.Since(due)
			s.mu.Lock()
			s.late = max(s.late, late)
			s.mu.Unlock()
		}
	}
}

// Proxy is the URL of the proxy through which the hosts are reached.
func (s *Site) Proxy() string { return "http://" + s.listen.Addr().String() }

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	s.mu.Lock()
	h := s.hosts[r.Host]
	if h == nil {
		s.strays++
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	wait := h.note(at, r.Host == Busy)
	if r.Host == Robots && strings.HasPrefix(r.URL.Path, "/private/") {
		h.Disallowed++
	}
	s.mu.Unlock()
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if r.Host == Slow {
		time.Sleep(latency)
	}
	s.answers.ServeHTTP(w, r)
	if _, found := s.answers.Handler(r); found != "" {
		s.mu.Lock()
		h.answered[r.URL.Path]++
		s.mu.Unlock()
	}
}

// answer makes what there is to answer with.
func (s *Site) answer() {
	s.answers.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { s.page(w, r.Host, 0) })
	s.answers.HandleFunc("/page/{i}", func(w http.ResponseWriter, r *http.Request) {
		if i, err := strconv.Atoi(r.PathValue("i")); err == nil && i > 0 && i < s.pages {
			s.page(w, r.Host, i)
			return
		}
		http.NotFound(w, r)
	})
	for from, to := range map[string]string{"/old/": "/page/", "/away/": "http://" + Plain + "/page/"} {
		s.answers.HandleFunc(Moved+from+"{i}", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to+r.PathValue("i"), http.StatusFound)
		})
	}
	var sitemap strings.Builder
	sitemap.WriteString(`<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for i := range s.pages {
		fmt.Fprintf(&sitemap, "<url><loc>http://%s%s</loc></url>", Plain, path(i))
	}
	for at, text := range map[string]string{
		Robots + "/robots.txt": fmt.Sprintf("User-agent: *\nDisallow: /private/\nCrawl-delay: %g\n", limits[Robots].Seconds()),
		Plain + "/robots.txt":  "Sitemap: " + Sitemap + "\n",
		Plain + "/sitemap.xml": sitemap.String() + "</urlset>",
	} {
		s.answers.HandleFunc(at, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
}

func path(i int) string {
	if i == 0 {
		return "/"
	}
	return "/page/" + strconv.Itoa(i)
}

// page writes a page: a node of a tree, with ways back and astray.
func (s *Site) page(w http.ResponseWriter, name string, i int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, "<!doctype html><title>%s %d</title>\n", name, i)
	to := []string{path(i / 2), path(i) + "#part", "http://elsewhere.example/", "mailto:crawler@" + name}
	if i == 0 && name == Plain {
		for _, other := range Hosts[1:] {
			to = append(to, "http://"+other+"/")
		}
	}
	if name == Robots {
		to = append(to, "/private/"+strconv.Itoa(i))
	}
	for _, child := range []int{2*i + 1, 2*i + 2} {
		if child < s.pages {
			to = append(to, s.way(name, child)...)
		}
	}
	for _, url := range to {
		fmt.Fprintf(w, "<a href=%q>there</a>\n", url)
	}
}

// way is how other pages of its host lead to a page.
func (s *Site) way(name string, i int) []string {
	switch {
	case name == Moved && i%3 == 0:
		return []string{"/old/" + strconv.Itoa(i)}
	case name == Plain && i >= s.pages-s.pages/4:
		return nil
	case name == Plain && i%5 == 0:
		return []string{"http://" + Moved + "/away/" + strconv.Itoa(i), path(i)}
	}
	return []string{path(i)}
}

// Done reports whether every page has been fetched.
func (s *Site) Done() bool { return s.Fetched() == s.pages*len(Hosts) }

// Fetched is how many pages have been.
func (s *Site) Fetched() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		for i := range s.pages {
			if h.answered[path(i)] > 0 {
				n++
			}
		}
	}
	return n
}

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
