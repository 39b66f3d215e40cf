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

const (
	limitsPage  = 50
	keysPage    = 15
	changesPage = 50
	maxBlocks   = 100
)

type limitsData struct {
	Rows    []limitRow
	Pages   pages
	Open    *openLimit        // the limit that the address opens; nil if it opens none
	Changes []throttle.Change // the eight newest changes
}

type openLimit struct {
	*limitRow
	Query string // only keys that contain this text are shown
	Found []keyRow
	Pages pages // of keys
}

// PerJob returns the denials for each allowed job.
func (o openLimit) PerJob() float64 { return float64(o.Sum.Denied) / float64(max(1, o.Sum.Allowed)) }

type keyRow struct {
	waitdb.Meter
	Blocked *throttle.Blocked  // nil if the key is not blocked
	Own     string             // rate and capacity of the key, if the limit does not give them
	ETA     *forecast.Estimate // when the last waiting job runs; nil if none waits
}

// loadLimits loads a page of the table of limits. If a limit is open, loadLimits loads the page that
// has this limit, and the parameter "page" is the page of the limit's keys.
func loadLimits(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	d := limitsData{Changes: s.Changes[:min(8, len(s.Changes))]}
	open := slices.IndexFunc(s.Limits, func(r limitRow) bool { return r.Name == at.Get("open") })
	page := pageNumber(at)
	var err error
	if open >= 0 {
		page = open / limitsPage
		d.Open, err = loadOpenLimit(ctx, p, s, &s.Limits[open], at)
		at = address{Values: url.Values{}}
	}
	d.Pages = newPages(at, page, limitsPage, len(s.Limits))
	d.Rows = on(d.Pages, s.Limits)
	return d, err
}

// loadOpenLimit loads a page of the limit's waiting and blocked keys.
func loadOpenLimit(ctx context.Context, p *Page, s *snapshot, row *limitRow, at address) (*openLimit, error) {
	o := &openLimit{limitRow: row, Query: at.Get("q")}
	var keys []string
	for _, k := range s.Demand[row.Name] {
		if strings.Contains(k.Key, o.Query) {
			keys = append(keys, k.Key)
		}
	}
	for _, b := range row.Blocks { // compare with the first 1,000 keys only, as there may be a million
		if strings.Contains(b.Key, o.Query) && !slices.Contains(keys[:min(len(keys), 1000)], b.Key) {
			keys = append(keys, b.Key)
		}
	}
	// Also show the key with exactly this name, even if no job waits for it.
	if o.Query != "" && len(o.Query) <= 200 && !slices.Contains(keys, o.Query) {
		keys = append([]string{o.Query}, keys...)
	}
	o.Pages = newPages(at, pageNumber(at), keysPage, len(keys))
	meters, err := p.queues.Meters(ctx, row.Name, on(o.Pages, keys))
	if err != nil {
		return nil, err
	}
	definition, err := p.queues.Definition(ctx, row.Name)
	if err != nil {
		return nil, err
	}
	for _, m := range meters {
		k := keyRow{Meter: m, ETA: s.KeyETA(row.Name, m.Key)}
		if i := slices.IndexFunc(definition.Keys, func(k throttle.KeyState) bool { return k.Key == m.Key }); i >= 0 {
			k.Own = definition.Keys[i].String()
		}
		if i := slices.IndexFunc(row.Blocks, func(b throttle.Blocked) bool { return b.Key == m.Key }); i >= 0 {
			k.Blocked = &row.Blocks[i]
		}
		o.Found = append(o.Found, k)
	}
	return o, nil
}

type changesData struct {
	Changes    []throttle.Change // the newest first
	Blocks     []blockRow        // sorted by their end, soonest first
	BlockCount int               // number of all blocks, including those beyond maxBlocks
	Pages      pages             // of Changes
}

type blockRow struct {
	Limit string
	throttle.Blocked
}

func loadChanges(_ context.Context, _ *Page, s *snapshot, at address) (any, error) {
	d := changesData{Pages: newPages(at, pageNumber(at), changesPage, len(s.Changes))}
	d.Changes = on(d.Pages, s.Changes)
	for _, row := range s.Limits {
		for _, b := range row.Blocks {
			d.Blocks = append(d.Blocks, blockRow{row.Name, b})
		}
	}
	slices.SortStableFunc(d.Blocks, func(a, b blockRow) int { return a.Until.Compare(b.Until) })
	d.BlockCount = len(d.Blocks)
	d.Blocks = d.Blocks[:min(len(d.Blocks), maxBlocks)]
	return d, nil
}
