package page

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// limitsPage and keysPage are how many limits and keys one page shows. The limits are
// in the snapshot; the keys of a page are one call of Redis.
const (
	limitsPage = 50
	keysPage   = 15
)

type limitsData struct {
	Rows   []limitRow // of the page, what most waits for first
	Pages  pages      // of limits
	Open   *openLimit // nil where none is open, or the one that was is gone
	Events []incident // the newest first
}

type openLimit struct {
	*limitRow
	Query string   // that keys are searched by, as a part of them
	Found []keyRow // of one page
	Pages pages    // of keys
	// PerJob is how many were denied for each job that was allowed then. One is what a backlog costs;
	// more has a reason, such as a pause or a crash.
	PerJob float64
}

type keyRow struct {
	waitdb.Meter
	Blocked *throttle.Blocked  // nil where it is not
	By      string             // who blocked it, as the end of a sentence
	Own     string             // what it counts by instead of the limit's rate
	ETA     *forecast.Estimate // when the last of the jobs that want it runs; nil where none does
}

// ownRate is what a key counts by instead of the limit's rate, in few words: what
// somebody said, and what refusals have made of it. Empty where nothing differs.
func ownRate(k throttle.KeyState) string {
	// For how long it holds is not said here.
	k.Override.For = 0
	text := k.Override.String()
	if k.Pace != "" {
		text = strings.TrimSpace(text + " now " + k.Pace)
	}
	return text
}

// makeLimits makes the first view. Where a limit is open the table shows the page that
// it is on, and the query's page is one of the limit's keys. So a limit that others
// overtake takes its page along and does not vanish under who reads it.
func makeLimits(ctx context.Context, p *Page, s *snapshot, at place) (any, error) {
	d := limitsData{Pages: newPages(at, limitsPage), Events: events(s, 8)}
	open := slices.IndexFunc(s.Limits, func(r limitRow) bool { return r.Name == at.Get("open") })
	var err error
	if open >= 0 {
		d.Pages = pages{Page: open/limitsPage + 1, Size: limitsPage, at: place{Values: url.Values{}}}
		// Only this reads anything: without an open limit all is in the snapshot.
		d.Open, err = openOf(ctx, p, s, &s.Limits[open], at)
	}
	d.Pages.Total = len(s.Limits)
	d.Rows = window(s.Limits, d.Pages)
	return d, err
}

// openOf is what is shown of an open limit. Its keys are those that are waited for, the
// most wanted first, and those that are blocked; meters are read of one page of them.
// The rest is work on keys that are in memory, and not their number squared where a
// million are wanted: whether a blocked key is among them is looked up in the thousand
// most wanted only, so one further down is listed twice.
func openOf(ctx context.Context, p *Page, s *snapshot, row *limitRow, at place) (*openLimit, error) {
	o := &openLimit{limitRow: row, Query: at.Get("q"), Pages: newPages(at, keysPage)}
	var keys []string
	for _, k := range s.wants[row.Name] {
		if strings.Contains(k.Key, o.Query) {
			keys = append(keys, k.Key)
		}
	}
	for _, b := range row.Blocks {
		if strings.Contains(b.Key, o.Query) && !slices.Contains(keys[:min(len(keys), 1000)], b.Key) {
			keys = append(keys, b.Key)
		}
	}
	// A key that nobody waits for can be looked up, too: its whole name is the search.
	// No key is longer than 200 bytes.
	if o.Query != "" && len(o.Query) <= 200 && !slices.Contains(keys, o.Query) {
		keys = append([]string{o.Query}, keys...)
	}
	o.Pages.Total = len(keys)
	// No more than a page of them: a call of Redis looks at a hundred at most.
	var needs []throttle.Need
	for _, key := range window(keys, o.Pages) {
		needs = append(needs, throttle.Need{Limit: row.Name, Key: key})
	}
	meters, err := p.queues.Limiter.Look(ctx, needs...)
	if err != nil {
		return nil, err
	}
	lasts := map[string]*forecast.Estimate{}
	if s.forecast != nil {
		for n, e := range s.forecast.Backlogs(row.Name) {
			e.StartsIn = s.forecast.At.Add(e.StartsIn).Sub(s.Now)
			lasts[n.Key] = &e
		}
	}
	for _, m := range meters {
		_, state, err := p.Limiter.Internals().Key(ctx, row.Name, m.Key)
		if err != nil {
			return nil, err
		}
		k := keyRow{Meter: m, ETA: lasts[m.Key], Own: ownRate(state)}
		if i := slices.IndexFunc(row.Blocks, func(b throttle.Blocked) bool { return b.Key == m.Key }); i >= 0 {
			k.Blocked, k.By = &row.Blocks[i], by(lastChange(s.Log, "blocked", row.Name, m.Key))
		}
		o.Found = append(o.Found, k)
	}
	// What was denied at once and then waited counts once as denied and once as allowed. Of
	// none it would be infinite, and nothing is known.
	if o.Sum.Allowed > 0 {
		o.PerJob = float64(o.Sum.Denied) / float64(o.Sum.Allowed)
	}
	return o, nil
}

// events are the last changes and denials, the newest first, n at most. Denials are
// three at most: there may be one a second for each limit, which would drive out the
// changes that explain them.
func events(s *snapshot, n int) []incident {
	var list []incident
	for _, c := range s.Log[:min(n, len(s.Log))] {
		list = append(list, changeEvent(c, s.Now))
	}
	list = append(list, s.Denials[:min(3, len(s.Denials))]...)
	slices.SortStableFunc(list, func(a, b incident) int { return b.At.Compare(a.At) })
	return list[:min(n, len(list))]
}

type changesData struct {
	Changes, Denials []incident // the newest first
	Blocks           []blockRow // those that open first in front
	Pages            pages      // of the changes
	// BlocksInAll counts those that are not shown, too.
	BlocksInAll int
}

type blockRow struct {
	Limit string
	throttle.Blocked
	By string // empty where the changelog does not know any more
}

// changesPage is how many changes one page shows, and maxBlocks how many blocks:
// there may be one for each of very many keys, and who wants to see a certain one
// searches the limit's keys.
const (
	changesPage = 50
	maxBlocks   = 100
)

// makeChanges makes the view of the changelog, with the last denials and maxBlocks
// blocks at most, those that end first on top. It reads nothing itself: all is in the
// snapshot. Blocks are as of when the limits were read, up to half a minute ago; those
// that have ended since are left out.
func makeChanges(_ context.Context, _ *Page, s *snapshot, at place) (any, error) {
	d := changesData{Pages: newPages(at, changesPage), Denials: s.Denials[:min(20, len(s.Denials))]}
	d.Pages.Total = len(s.Log)
	for _, c := range window(s.Log, d.Pages) {
		d.Changes = append(d.Changes, changeEvent(c, s.Now))
	}
	for _, row := range s.Limits {
		d.BlocksInAll += len(row.Blocks)
		for _, b := range row.Blocks {
			if len(d.Blocks) < maxBlocks && b.Until.After(s.Now) {
				d.Blocks = append(d.Blocks, blockRow{row.Name, b, short(lastChange(s.Log, "blocked", row.Name, b.Key).By)})
			}
		}
	}
	slices.SortStableFunc(d.Blocks, func(a, b blockRow) int { return a.Until.Compare(b.Until) })
	return d, nil
}
