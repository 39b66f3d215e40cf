package frontier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Counts is how many URLs a crawl has found, and what has become of them. Found is
// the sum of all others but Beyond. Redis counts as URLs change their state, so what it costs
// to read them grows with the hosts of a crawl and not with its URLs.
type Counts struct {
	Found      int `json:"found"`
	Fetched    int `json:"fetched"`
	Unchanged  int `json:"unchanged"`
	Redirected int `json:"redirected"`
	Missing    int `json:"missing"`
	Disallowed int `json:"disallowed"`
	Failed     int `json:"failed"`
	Waiting    int `json:"waiting"`
	// Beyond is how often URLs were found that the run had no room for. They are not
	// among Found.
	Beyond int `json:"beyond"`
}

// Progress is how far a run of a crawl has come. A run in which nothing waits is
// complete, until a job of it that failed is run again.
type Progress struct {
	Name  string    `json:"name"`
	Run   string    `json:"run"`
	Began time.Time `json:"began"` // by Redis's clock
	// Ended is when the last URL was taken, if nothing waits any more.
	Ended time.Time `json:"ended,omitzero"`
	Counts
	Hosts []HostCounts `json:"hosts"` // of which there are URLs, by name
}

// HostCounts are the counts of one host.
type HostCounts struct {
	Host string `json:"host"`
	Counts
}

// Crawls are the names of the crawls, that first of which a URL was taken last. Those
// of which none was for 90 days are forgotten.
func (f *Frontier) Crawls(ctx context.Context) ([]string, error) {
	return f.rdb.ZRevRange(ctx, f.prefix+"crawls", 0, -1).Result()
}

// Progress is that of a crawl's last run; ok is false if there is no such crawl. It
// takes two round trips, and one where nothing waits, so between them a run can end that the counts are of: then
// they are all 0.
func (f *Frontier) Progress(ctx context.Context, crawl string) (p Progress, ok bool, err error) {
	about, err := f.rdb.HGetAll(ctx, f.key("crawl", crawl)).Result()
	if err != nil || len(about) == 0 {
		return p, false, err
	}
	began, _ := strconv.ParseInt(about["began"], 10, 64)
	p = Progress{Name: crawl, Run: about["run"], Began: time.UnixMicro(began)}
	counts, err := f.rdb.HGetAll(ctx, f.key("crawl_hosts", crawl+"|"+p.Run)).Result()
	if err != nil {
		return p, false, err
	}
	// A field is host|state, and that of all hosts together has an empty host: no host
	// has a | in it, and none is empty.
	hosts := map[string]*Counts{}
	for field, text := range counts {
		host, state, _ := strings.Cut(field, "|")
		n, err := strconv.Atoi(text)
		if err != nil {
			return p, false, fmt.Errorf("crawl %s: count %q of %q: want a number", crawl, text, field)
		}
		if hosts[host] == nil {
			hosts[host] = &Counts{}
		}
		hosts[host].add(State(state), n)
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if host == "" {
			p.Counts = *hosts[host]
			continue
		}
		p.Hosts = append(p.Hosts, HostCounts{host, *hosts[host]})
	}
	if p.Found == 0 || p.Waiting > 0 {
		return p, true, nil
	}
	last, err := f.rdb.ZScore(ctx, f.prefix+"crawls", crawl).Result()
	if err == nil {
		p.Ended = time.UnixMicro(int64(last))
	} else if !errors.Is(err, redis.Nil) {
		return p, false, err
	}
	return p, true, nil
}

// add counts n URLs of a state. One that it does not know, of a later version, is
// among Found alone.
func (c *Counts) add(state State, n int) {
	if state == Beyond {
		c.Beyond += n
		return
	}
	c.Found += n
	of := map[State]*int{
		Waiting: &c.Waiting, Fetched: &c.Fetched, Unchanged: &c.Unchanged, Redirected: &c.Redirected,
		Missing: &c.Missing, Disallowed: &c.Disallowed, Failed: &c.Failed,
	}[state]
	if of != nil {
		*of += n
	}
}
