package tasks

import (
	"cmp"
	"context"
	"fmt"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/links"
)

// lead is where a page leads to.
type lead struct {
	frontier.Link
	hops    int  // redirects in a row that have led there
	sitemap bool // whether it is read as a sitemap, whatever it says of itself
	nested  int  // how many sitemaps list one another up to it
}

// leads are those of a page that so many redirects have led to, from which the
// crawl may go on to a depth. A link costs one of it, to a page or a sitemap: both lead
// on. A redirect costs none, since it leads to the page that was meant.
func leads(page *frontier.Page, depth, hops int) []lead {
	if page == nil {
		return nil
	}
	var to []lead
	if page.To != "" {
		to = append(to, lead{Link: frontier.Link{URL: page.To, Depth: depth}, hops: min(hops+1, MaxRedirects), sitemap: page.Level > 0, nested: page.Level})
	}
	if depth == 0 {
		return to
	}
	for _, url := range page.Sitemaps {
		to = append(to, lead{Link: frontier.Link{URL: url, Depth: depth - 1}, sitemap: true})
	}
	for _, url := range page.Nested {
		to = append(to, lead{Link: frontier.Link{URL: url, Depth: depth - 1}, sitemap: true, nested: page.Level + 1})
	}
	for _, url := range page.Links {
		to = append(to, lead{Link: frontier.Link{URL: url, Depth: depth - 1}})
	}
	return to
}

// spreadBatch is how many URLs are looked up at once: one round trip, in which Redis
// does nothing else.
const spreadBatch = 500

// spread enqueues what has not been found before. Of what has, but further from
// where the crawl began, it spreads the links in turn, as they were found then:
// nothing is fetched twice. It can be repeated wherever it broke off, for it
// notes what it did only once all that follows from it is done.
//
// Pages that it spreads in turn it reads one after the other, when all that came before is
// looked up: so it has one page's links in memory, and not those of thousands. A URL of the
// run is looked at again only for a larger depth, so that ends also where pages lead to each
// other.
func (j *crawlJob) spread(ctx context.Context, to []lead) error {
	best := map[string]int{} // by URL of the run, the depth to which it is spread
	var deeper, followed []frontier.Link
	for len(to) > 0 || len(deeper) > 0 {
		for len(to) < spreadBatch && len(deeper) > 0 {
			l := deeper[0]
			page, err := j.Frontier.Page(ctx, j.page.Crawl, l.URL)
			if err != nil {
				return err
			}
			to = append(to, leads(page, l.Depth, 0)...)
			followed, deeper = append(followed, l), deeper[1:]
		}
		// A URL that is there twice is looked up again for a larger depth alone.
		var batch []lead
		for len(to) > 0 && len(batch) < spreadBatch {
			l := to[0]
			to = to[1:]
			if depth, ok := best[l.URL]; (!ok || depth < l.Depth) && links.Within(l.URL, j.hosts) && (l.sitemap || j.goes(l.URL)) {
				batch = append(batch, l)
			}
		}
		more, err := j.spreadBatch(ctx, batch, best)
		if err != nil {
			return err
		}
		deeper = append(deeper, more...)
	}
	return j.Frontier.Followed(ctx, j.run, followed)
}

// spreadBatch enqueues the new ones of a batch and notes all; it returns the URLs
// that were fetched with a smaller depth. A new URL that a known robots.txt disallows
// is noted as that without a job. Where robots.txt is not known its job finds out:
// to ask is a request, and wants that host's permit. Of those that the run has, or has
// room for, it notes in best how deep they are spread.
func (j *crawlJob) spreadBatch(ctx context.Context, batch []lead, best map[string]int) ([]frontier.Link, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	urls := make([]frontier.Link, len(batch))
	for i, l := range batch {
		urls[i] = l.Link
	}
	seen, err := j.Frontier.Look(ctx, j.run, urls)
	if err != nil || seen == nil { // jobs of a run that is over would only cost permits
		return nil, err
	}
	var found, disallowed, beyond []frontier.Link
	// In the page's order: so a crawl asks for pages in the order in which links stand.
	for i, l := range batch {
		if seen[i].State == frontier.Beyond {
			beyond = append(beyond, l.Link)
			continue
		}
		best[l.URL] = max(best[l.URL], l.Depth)
		if seen[i].State != "" { // there is a job for it, or it needs none
			if l.Depth > seen[i].Depth {
				found = append(found, l.Link)
			}
			continue
		}
		file, err := j.knownRobots(ctx, origin(l.URL))
		if err = cmp.Or(err, ctx.Err()); err != nil { // many links that are not allowed take their time
			return nil, err
		}
		if file != nil && !file.Allowed(l.URL) {
			disallowed = append(disallowed, l.Link)
			continue
		}
		// The job comes before the note: see Frontier.Found.
		if err := j.enqueue(ctx, j.next(l)); err != nil {
			return nil, fmt.Errorf("%s leads to %s: %w", j.page.URL, l.URL, err)
		}
		found = append(found, l.Link)
	}
	if _, _, err := j.Frontier.Found(ctx, j.run, frontier.Disallowed, disallowed); err != nil {
		return nil, err
	}
	if _, _, err := j.Frontier.Found(ctx, j.run, frontier.Beyond, beyond); err != nil {
		return nil, err
	}
	if len(beyond) > 0 {
		j.result.Beyond, j.result.Reason = j.result.Beyond+len(beyond), j.full()
	}
	added, deeper, err := j.Frontier.Found(ctx, j.run, frontier.Waiting, found)
	j.result.New += added
	return deeper, err
}

// next is the job of a URL that the page leads to. Allow gets hosts and no words
// such as SameHost, which would mean another host there.
func (j *crawlJob) next(l lead) CrawlFetch {
	return CrawlFetch{
		Crawl: j.page.Crawl, URL: l.URL, Depth: l.Depth, Allow: j.hosts, Run: j.run.Name,
		Sitemap: l.sitemap, Nested: l.nested, From: j.page.URL, Hops: l.hops,
	}
}
