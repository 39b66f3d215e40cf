package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
)

// crawledPage is what a page leads to, and how much of it was not read.
type crawledPage struct {
	links, sitemaps, nested []string // nested are sitemaps that the page lists, being one itself
	sitemap                 bool     // whether the page is a sitemap
	to                      string   // where the page redirects
	unread                  int
}

// fetch fetches the page and notes what has become of it. By then robots.txt allows
// it. It makes one request, with DefaultTimeout for all of it.
//
// The body is saved, and what the page leads to is enqueued, before the page is noted: a
// worker that dies in between does all of it again.
func (j *crawlJob) fetch(ctx context.Context, file *robots.File) error {
	if err := j.pace(ctx, file); err != nil {
		return err
	}
	limited, cancel := within(ctx, DefaultTimeout)
	defer cancel()
	a, err := j.get(limited, j.page.URL)
	if err != nil {
		return err
	}
	defer a.resp.Body.Close()
	j.result.Status = a.Status
	page := crawledPage{sitemaps: j.sitemaps(file)}
	wrong := checkStatus(a.Answer, nil, a.at)
	switch {
	case redirects(a.Status):
		a.drop()
		if page.to, j.result.Reason = j.movedTo(a); page.to == "" {
			return j.finish(ctx, "missing", frontier.Missing, page)
		}
		return j.finish(ctx, "redirected", frontier.Redirected, page)
	case wrong == nil:
		if err := j.read(ctx, a, &page); err != nil {
			return err
		}
		return j.finish(ctx, "fetched", frontier.Fetched, page)
	case wrong.Status >= 400 && !wrong.permanent(a.resp.Header): // which may pass
		a.drop()
		return wrong
	}
	a.drop()
	j.result.Reason = wrong.Error()
	return j.finish(ctx, "missing", frontier.Missing, crawledPage{})
}

// read reads the body as far as is wanted, finds where the page leads to, and saves the body
// unless the page asks not to be kept.
func (j *crawlJob) read(ctx context.Context, a *answer, page *crawledPage) error {
	body, err := j.body(a)
	if err != nil {
		return err
	}
	noIndex := j.tags(a, nil).NoIndex // of whatever type the page is
	asks, err := j.follow(ctx, a, body, page)
	if err := cmp.Or(ctx.Err(), err); err != nil || noIndex || asks || j.SaveDir == "" {
		return err
	}
	a.call.Save, a.resp.Body = j.page.Crawl+"/", io.NopCloser(bytes.NewReader(body))
	var saved HTTPResult
	if err := (&HTTPHandler{SaveDir: j.SaveDir, MaxSave: max(1, int64(len(body)))}).save(a, &saved); err != nil {
		return err
	}
	j.result.Saved = saved.Saved
	return nil
}

// movedTo is the URL that the page redirects to: a page of its own, whose host may be another
// and wants permits and a robots.txt of its own. If there is no such URL it is empty, and
// the reason says why: the page is done all the same.
func (j *crawlJob) movedTo(a *answer) (next, reason string) {
	next, err := links.Canonical(a.url.String(), a.resp.Header.Get("Location"))
	switch {
	case err != nil:
		return "", "it leads nowhere: " + err.Error()
	case j.page.Hops >= MaxRedirects:
		return "", fmt.Sprintf("it leads to %s: that would be redirect %d, want at most %d", next, j.page.Hops+1, MaxRedirects)
	}
	switch j.leftOut(CrawlFetch{URL: next}) {
	case frontier.OtherHost:
		return next, fmt.Sprintf("it leads to %s: the crawl does not go to that host", next)
	case frontier.Excluded:
		return next, fmt.Sprintf("it leads to %s: the crawl does not go there", next)
	}
	return next, "it leads to " + next
}

// body reads the body as far as is wanted. A body that breaks off is an error, but one
// that is too long is not: the beginning of a page is worth having.
func (j *crawlJob) body(a *answer) ([]byte, error) {
	most := cmp.Or(max(0, j.MaxPage), DefaultMaxPage)
	// One byte more than is wanted tells whether there is more.
	body, err := io.ReadAll(io.LimitReader(a.resp.Body, most+1))
	if err != nil {
		return nil, &NetworkError{URL: a.URL, Status: a.Status, Err: err}
	}
	if int64(len(body)) > most {
		body, j.result.Truncated = body[:most], true
	}
	j.result.Length, j.result.Type = len(body), a.resp.Header.Get("Content-Type")
	return body, nil
}

// follow finds where the page leads to, and reports whether its tags ask not to be
// kept. It writes that to page. The Content-Type decides how the page is read, and the body where there is
// none. A sitemap with mistakes gives what could be read of it; one that gives nothing is an
// error, so that it counts as failed and says why.
func (j *crawlJob) follow(ctx context.Context, a *answer, body []byte, page *crawledPage) (noIndex bool, err error) {
	media, _, _ := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	if media == "" {
		media, _, _ = mime.ParseMediaType(http.DetectContentType(body))
	}
	switch {
	case j.page.Sitemap || isSitemap(media, body):
		found, err := links.ReadSitemap(j.page.URL, bytes.NewReader(body))
		switch {
		case err != nil && len(found.Pages)+len(found.Sitemaps) == 0:
			return false, fmt.Errorf("%s: %w: %w", j.page.URL, err, asynq.SkipRetry)
		case err != nil: // what was read before the mistake counts
			j.result.Reason = err.Error()
		case found.More:
			j.result.Reason = fmt.Sprintf("a sitemap of more than %d entries: the others are left out", links.MaxSitemapEntries)
		}
		page.links, page.nested, page.sitemap = found.Pages, found.Sitemaps, true
		if found.More {
			page.unread++
		}
		if n := len(page.nested); j.page.Nested >= MaxNested && n > 0 {
			page.unread += n
			j.result.Reason = fmt.Sprintf("a sitemap that a sitemap lists leads to no other: %d are left out", n)
			page.nested = nil
		}
	case media == "text/html" || media == "application/xhtml+xml":
		found := j.tags(a, body)
		page.links, noIndex, page.unread = found.Links, found.NoIndex, found.Beyond
		if found.Cut {
			j.result.Reason = "a tag or a script of more than 2 MiB: links after it are left out"
		}
	}
	j.result.Links, j.result.Beyond = len(page.links)+len(page.sitemaps)+len(page.nested), page.unread
	return noIndex, nil
}

// tags is what the answer's header says to robots, and the tags of a page's text.
func (j *crawlJob) tags(a *answer, body []byte) links.Page {
	return links.FromPage(j.page.URL, a.resp.Header.Get("Content-Type"), a.resp.Header.Values("X-Robots-Tag"), robots.Token(j.agent()), body)
}

// isSitemap reports whether a page that was found as any other is a sitemap: a link
// or a redirect can lead to one.
func isSitemap(media string, body []byte) bool {
	// The root element is one of two. Before it only a declaration, a style sheet and
	// comments can stand.
	head := body[:min(len(body), 1024)]
	return (media == "text/xml" || media == "application/xml") &&
		(bytes.Contains(head, []byte("<urlset")) || bytes.Contains(head, []byte("<sitemapindex")))
}

// sitemaps are those of the origin, which its robots.txt names, as far as the crawl
// goes to their hosts. Every page of the origin leads to them, and the first one to
// be fetched enqueues their jobs.
func (j *crawlJob) sitemaps(file *robots.File) []string {
	var urls []string
	// The groups of robots.txt do not matter: a Sitemap line is for all agents.
	for _, text := range file.Sitemaps {
		// They should be absolute, and many are not.
		url, err := links.Canonical(origin(j.page.URL)+"/", text)
		if err == nil && links.Within(url, j.hosts) && !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}

// finish notes what has become of the URL, after all that it leads to has been
// enqueued: a worker that dies before that runs the job again.
func (j *crawlJob) finish(ctx context.Context, outcome string, state frontier.State, page crawledPage) error {
	j.result.Outcome = outcome
	for batch := range slices.Chunk(j.leads(page), spreadBatch) {
		if over, err := j.spread(ctx, batch); over || err != nil {
			return err
		}
	}
	return j.Frontier.Done(ctx, j.crawl, j.page.URL, state, page.unread)
}

// leads are the URLs that a page leads to. A link costs one of the page's depth, and so does the
// way to a sitemap, which stands for the links in it: these cost nothing more. A redirect costs
// nothing, since it leads to the page that was meant.
func (j *crawlJob) leads(page crawledPage) []CrawlFetch {
	var to []CrawlFetch
	if page.to != "" {
		to = append(to, CrawlFetch{URL: page.to, Depth: j.page.Depth, Hops: j.page.Hops + 1, Sitemap: j.page.Nested > 0, Nested: j.page.Nested})
	}
	depth := j.page.Depth
	if !page.sitemap {
		depth--
	}
	for _, url := range page.sitemaps {
		to = append(to, CrawlFetch{URL: url, Depth: depth, Sitemap: true})
	}
	for _, url := range page.nested {
		to = append(to, CrawlFetch{URL: url, Depth: depth, Sitemap: true, Nested: j.page.Nested + 1})
	}
	for _, url := range page.links {
		to = append(to, CrawlFetch{URL: url, Depth: depth})
	}
	return to
}

// spreadBatch is how many URLs are looked up at once: one round trip, in which Redis
// does nothing else.
const spreadBatch = 500

// spread enqueues the new ones of a batch and notes all, with the reason for those that are
// left out. It reports whether another crawl of that name has begun: then jobs would only
// cost permits. It can be repeated wherever it broke off: the jobs come before the notes.
func (j *crawlJob) spread(ctx context.Context, batch []CrawlFetch) (over bool, err error) {
	urls := make([]string, len(batch))
	for i, l := range batch {
		urls[i] = l.URL
	}
	look, err := j.Frontier.Look(ctx, j.crawl, urls)
	if err != nil || look == nil {
		return look == nil, err
	}
	var found []frontier.Find
	// In the page's order: so a crawl asks for pages in the order in which links stand.
	for i, l := range batch {
		if look.Known[i] {
			continue
		}
		state := j.leftOut(l)
		if state == "" {
			if state, err = j.enqueueNew(ctx, l, look); err != nil {
				return false, err
			}
		}
		found = append(found, frontier.Find{URL: l.URL, State: state})
	}
	return false, j.Frontier.Found(ctx, j.crawl, j.page.URL, found)
}

// enqueueNew enqueues the job of a new URL, unless robots.txt is known to disallow it or the
// crawl has no room, and returns the state that the URL has then. If robots.txt is not
// known the URL's job finds out: to ask is a request, and wants that host's permit.
func (j *crawlJob) enqueueNew(ctx context.Context, l CrawlFetch, look *frontier.Look) (frontier.State, error) {
	file, err := j.knownRobots(ctx, origin(l.URL))
	if err = cmp.Or(err, ctx.Err()); err != nil { // many links that are not allowed take their time
		return "", err
	}
	known := file != nil
	if known && !file.Allowed(l.URL) {
		return frontier.Disallowed, nil
	}
	if full := look.Room(l.URL, known); full != "" {
		j.result.Beyond++
		j.result.Reason = j.full()
		return full, nil
	}
	// Allow gets hosts and no words such as SameHost, which would mean another host there.
	l.Crawl, l.Allow, l.Start, l.From = j.crawl.Name, j.hosts, j.crawl.Start, j.page.URL
	if err := j.enqueue(ctx, l); err != nil {
		return "", fmt.Errorf("%s leads to %s: %w", j.page.URL, l.URL, err)
	}
	look.Take(l.URL, known)
	j.result.New++
	if known {
		return frontier.Waiting, nil
	}
	return frontier.Unasked, nil
}
