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
	"github.com/headgate/headgate/tasks/links"
	"github.com/headgate/headgate/tasks/robots"
	"github.com/headgate/headgate/tasks/warc"
)

// fetch fetches the page and notes what has become of it. By then robots.txt allows
// it. It makes one request, with DefaultTimeout for all of it, and asks only whether
// the page has changed where an earlier run has kept what that needs.
//
// The page is archived before it is noted: a worker that dies in between fetches and
// archives it twice, which is better than a page that is nowhere. What it leads to is
// enqueued by finish, before the note as well.
func (j *crawlJob) fetch(ctx context.Context, file *robots.File) error {
	last, err := j.Frontier.Page(ctx, j.page.Crawl, j.page.URL)
	if err != nil {
		return err
	}
	if err := j.delay(ctx, file, origin(j.page.URL)); err != nil {
		return err
	}
	condition := conditions(last, j.run.Name)
	limited, cancel := within(ctx, DefaultTimeout)
	defer cancel()
	a, err := j.get(limited, j.page.URL, condition)
	if err != nil {
		return err
	}
	defer a.resp.Body.Close()
	j.result.Status = a.Status
	page := &frontier.Page{Run: j.run.Name, Sitemaps: j.sitemaps(file), Level: j.page.Nested}
	wrong := checkStatus(a.Answer, nil, a.at)
	state := frontier.Missing
	switch {
	case a.Status == http.StatusNotModified && condition != nil: // else it is a status as any other
		state = frontier.Unchanged
		// It leads where it led; the sitemaps of robots.txt are those of today.
		page.ETag, page.Modified, page.Links, page.Nested = last.ETag, last.Modified, last.Links, last.Nested
		page.Archived = last.Archived
	case redirects(a.Status):
		state = frontier.Redirected
	case wrong == nil:
		state = frontier.Fetched
	case wrong.Status >= 400 && !wrong.permanent(a.resp.Header): // which may pass
		a.drop()
		return wrong
	}
	if err := j.keep(ctx, a, state, page, last); err != nil {
		return err
	}
	switch state {
	case frontier.Fetched:
		j.result.Outcome = "fetched"
		return j.finish(ctx, state, page)
	case frontier.Unchanged:
		j.result.Outcome = "unchanged"
	case frontier.Redirected:
		j.result.Outcome = "redirected"
		page.To, j.result.Reason = j.movedTo(a)
	case frontier.Missing:
		// Of the page nothing is kept, so what an earlier run has kept stays for the next.
		j.result.Outcome, j.result.Reason, page = "missing", wrong.Error(), nil
	}
	a.drop()
	return j.finish(ctx, state, page)
}

// keep reads the answer as far as it is wanted: it writes to page where a fetched one leads
// to, and archives all that do not ask against it, so that a replay answers the same: also
// a redirect, that there is nothing, or that the page has not changed since it was archived.
func (j *crawlJob) keep(ctx context.Context, a *answer, state frontier.State, page, last *frontier.Page) (err error) {
	archived := j.Archive != nil && (state != frontier.Unchanged || page.Archived.ID != "")
	if !archived && state != frontier.Fetched {
		return nil
	}
	body, err := j.read(a)
	if err != nil {
		return err
	}
	noIndex := j.tags(a, nil).NoIndex // of whatever type the page is
	if state == frontier.Fetched {
		page.ETag, page.Modified = a.resp.Header.Get("ETag"), a.resp.Header.Get("Last-Modified")
		asks, err := j.follow(ctx, a, body, page)
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		noIndex = noIndex || asks
	}
	if !archived || noIndex {
		return nil
	}
	// What has the text of a redirect or an error is not what has the page's.
	var before warc.Capture
	text := state == frontier.Fetched || state == frontier.Unchanged
	if text && last != nil {
		before = last.Archived
	}
	capture, err := j.archive(a, body, before)
	if text {
		page.Archived = capture
	}
	return err
}

// conditions are the headers that ask for the page only if it has changed since
// an earlier run; nil for none. What this run itself has kept does not count: it is
// from an attempt that broke off, and the page may not be in the archive.
func conditions(last *frontier.Page, run string) map[string]string {
	if last == nil || last.Run == run || last.ETag == "" && last.Modified == "" {
		return nil
	}
	// Both where both are known: a server that knows ETags then goes by these alone
	// (RFC 9110, 13.2.2). What another server sent and cannot be sent back is left out.
	headers := map[string]string{}
	for name, value := range map[string]string{"If-None-Match": last.ETag, "If-Modified-Since": last.Modified} {
		if value != "" && validHeaderValue(value) {
			headers[name] = value
		}
	}
	return headers
}

// movedTo is the URL that the page redirects to: a page of its own, whose host may be another
// and wants permits and a robots.txt of its own. Where the crawl cannot follow it is empty,
// and the reason says why: the page is done all the same.
func (j *crawlJob) movedTo(a *answer) (next, reason string) {
	next, err := links.Canonical(a.url.String(), a.resp.Header.Get("Location"))
	switch {
	case err != nil:
		return "", "it leads nowhere: " + err.Error()
	case j.page.Hops >= MaxRedirects:
		return "", fmt.Sprintf("it leads to %s: that would be redirect %d, want at most %d", next, j.page.Hops+1, MaxRedirects)
	case !links.Within(next, j.hosts):
		return "", fmt.Sprintf("it leads to %s: the crawl does not go to that host", next)
	case !j.goes(next):
		return "", fmt.Sprintf("it leads to %s: the crawl does not go there", next)
	}
	return next, "it leads to " + next
}

// read reads the body as far as is wanted. One that breaks off is an error, but one
// that is too long is not: the beginning of a page is worth having.
func (j *crawlJob) read(a *answer) ([]byte, error) {
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
// kept. It writes that to page, without what lies on hosts that the crawl does not go
// to. The Content-Type decides how the page is read, and the body where there is
// none. A sitemap with mistakes gives what could be read of it; one that gives nothing is an
// error, so that it counts as failed and says why.
func (j *crawlJob) follow(ctx context.Context, a *answer, body []byte, page *frontier.Page) (noIndex bool, err error) {
	media, _, _ := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	if media == "" {
		media, _, _ = mime.ParseMediaType(http.DetectContentType(body))
	}
	switch {
	case j.page.Sitemap || isSitemap(media, body):
		found, err := links.ReadSitemap(j.page.URL, endingReader{ctx, bytes.NewReader(body)})
		switch {
		case err != nil && len(found.Pages)+len(found.Sitemaps) == 0:
			return false, fmt.Errorf("%s: %w: %w", j.page.URL, err, asynq.SkipRetry)
		case err != nil: // what was read before the mistake counts
			j.result.Reason = err.Error()
		case found.More:
			j.result.Reason = fmt.Sprintf("a sitemap of more than %d entries, or of long ones: the others are left out", links.MaxSitemapEntries)
		}
		page.Links, page.Nested = found.Pages, found.Sitemaps
		if page.Level >= MaxNested && len(page.Nested) > 0 {
			j.result.Beyond += len(page.Nested)
			j.result.Reason = fmt.Sprintf("a sitemap that a sitemap lists leads to no other: %d are left out", len(page.Nested))
			page.Nested = nil
		}
	case media == "text/html" || media == "application/xhtml+xml":
		found := j.tags(a, body)
		page.Links, noIndex = found.Links, found.NoIndex
		j.result.Beyond += found.Beyond
		if found.Cut {
			j.result.Reason = "a tag or a script of more than 2 MiB: links after it are left out"
		}
	}
	// Before they are kept: most links of many pages lead elsewhere.
	page.Links = slices.DeleteFunc(page.Links, func(to string) bool { return !j.goes(to) })
	page.Nested = slices.DeleteFunc(page.Nested, func(to string) bool { return !links.Within(to, j.hosts) })
	j.result.Links = len(page.Links) + len(page.Sitemaps) + len(page.Nested)
	return noIndex, nil
}

// tags is what the answer's header says to robots, and the tags of a page's text.
func (j *crawlJob) tags(a *answer, body []byte) links.Page {
	return links.FromPage(j.page.URL, a.resp.Header.Get("Content-Type"), a.resp.Header.Values("X-Robots-Tag"), robots.Token(j.agent()), body)
}

// endingReader is a reader that fails once the context has ended: of what is packed a thousand-
// fold it can take seconds to see the end.
type endingReader struct {
	ctx context.Context
	in  io.Reader
}

func (u endingReader) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.in.Read(p)
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

// archive keeps the answer, writes to the result where it is, and returns what has its
// text: one that is archived already is not archived again. The moment is that of the
// request, as WARC wants it. An error is the disk's, and the page is tried again.
func (j *crawlJob) archive(a *answer, body []byte, before warc.Capture) (warc.Capture, error) {
	e := warc.Exchange{Request: a.resp.Request, Response: a.resp, Body: body, At: a.at.Add(-a.Latency), Address: a.address, Before: before}
	// WARC's word for a body that was cut because it is long.
	if j.result.Truncated {
		e.Truncated = "length"
	}
	file, at, err := j.Archive.Add(j.page.Crawl, e)
	j.result.File, j.result.Offset = file, at.Offset
	return at.Capture, err
}

// finish notes what has become of the URL, after all that it leads to has been
// enqueued: whoever dies before that runs again. Meanwhile the URL may have been
// found nearer to where the crawl began: then its links are spread once more, to the
// larger depth. That ends, for depths grow and are bounded.
func (j *crawlJob) finish(ctx context.Context, state frontier.State, page *frontier.Page) error {
	depth := j.page.Depth
	for {
		if err := j.spread(ctx, leads(page, depth, j.page.Hops)); err != nil {
			return err
		}
		asked, err := j.Frontier.Done(ctx, j.run, frontier.Link{URL: j.page.URL, Depth: depth}, state, page)
		if err != nil || asked <= depth {
			return err
		}
		depth = asked
	}
}

// leads are those of a page that so many redirects have led to, from which the
// crawl may go on to a depth. A link costs one of it, to a page or a sitemap: both lead
// on. A redirect costs none, since it leads to the page that was meant.
func leads(page *frontier.Page, depth, hops int) []CrawlFetch {
	if page == nil {
		return nil
	}
	var to []CrawlFetch
	if page.To != "" {
		to = append(to, CrawlFetch{URL: page.To, Depth: depth, Hops: min(hops+1, MaxRedirects), Sitemap: page.Level > 0, Nested: page.Level})
	}
	if depth == 0 {
		return to
	}
	for _, url := range page.Sitemaps {
		to = append(to, CrawlFetch{URL: url, Depth: depth - 1, Sitemap: true})
	}
	for _, url := range page.Nested {
		to = append(to, CrawlFetch{URL: url, Depth: depth - 1, Sitemap: true, Nested: page.Level + 1})
	}
	for _, url := range page.Links {
		to = append(to, CrawlFetch{URL: url, Depth: depth - 1})
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
func (j *crawlJob) spread(ctx context.Context, to []CrawlFetch) error {
	best := map[string]int{} // by URL of the run, the depth to which it is spread
	var deeper []frontier.Link
	var followed []frontier.Find
	for len(to) > 0 || len(deeper) > 0 {
		for len(to) < spreadBatch && len(deeper) > 0 {
			l := deeper[0]
			page, err := j.Frontier.Page(ctx, j.page.Crawl, l.URL)
			if err != nil {
				return err
			}
			to = append(to, leads(page, l.Depth, 0)...)
			followed, deeper = append(followed, frontier.Find{Link: l, State: frontier.Followed}), deeper[1:]
		}
		// A URL that is there twice is looked up again for a larger depth alone.
		var batch []CrawlFetch
		for len(to) > 0 && len(batch) < spreadBatch {
			l := to[0]
			to = to[1:]
			if depth, ok := best[l.URL]; (!ok || depth < l.Depth) && links.Within(l.URL, j.hosts) && (l.Sitemap || j.goes(l.URL)) {
				batch = append(batch, l)
			}
		}
		more, err := j.spreadBatch(ctx, batch, best)
		if err != nil {
			return err
		}
		deeper = append(deeper, more...)
	}
	_, err := j.Frontier.Found(ctx, j.run, followed)
	return err
}

// spreadBatch enqueues the new ones of a batch and notes all; it returns the URLs
// that were fetched with a smaller depth. A new URL that a known robots.txt disallows
// is noted as that without a job. Where robots.txt is not known its job finds out:
// to ask is a request, and wants that host's permit. Of those that the run has, or has
// room for, it notes in best how deep they are spread.
func (j *crawlJob) spreadBatch(ctx context.Context, batch []CrawlFetch, best map[string]int) ([]frontier.Link, error) {
	urls := make([]frontier.Find, len(batch))
	for i, l := range batch {
		urls[i] = frontier.Find{Link: l.link(), State: frontier.Look}
	}
	looks, err := j.Frontier.Found(ctx, j.run, urls)
	if err != nil || len(looks) == 0 { // jobs of a run that is over would only cost permits
		return nil, err
	}
	var found []frontier.Find
	// In the page's order: so a crawl asks for pages in the order in which links stand.
	for i, l := range batch {
		state := frontier.Waiting
		if looks[i] != frontier.NoRoom {
			best[l.URL] = max(best[l.URL], l.Depth)
		}
		switch looks[i] {
		case frontier.Seen: // there is a job for it, or it needs none
			continue
		case frontier.NoRoom:
			state = frontier.Beyond
		case frontier.Unseen:
			if state, err = j.enqueueNew(ctx, l); err != nil {
				return nil, err
			}
		}
		found = append(found, frontier.Find{Link: l.link(), State: state})
	}
	verdicts, err := j.Frontier.Found(ctx, j.run, found)
	var deeper []frontier.Link
	for i, verdict := range verdicts {
		switch {
		case verdict == frontier.NoRoom:
			j.result.Beyond++
			j.result.Reason = j.full()
		case verdict == frontier.Deeper:
			deeper = append(deeper, found[i].Link)
		case verdict == frontier.Unseen && found[i].State == frontier.Waiting:
			j.result.New++
		}
	}
	return deeper, err
}

// maxMatching bounds how much one page's links cost to match against wildcards, in wildcards
// times bytes of a URL. Each costs about a nanosecond, and a thousand usual links against a
// hundred wildcards are 10 million.
const maxMatching = 200e6

// affords reports whether the page may still match so much, and counts it. If not,
// the link's own job asks robots.txt, as each job does before it fetches.
func (j *crawlJob) affords(cost int) bool {
	j.matching += cost
	return j.matching <= maxMatching
}

// enqueueNew enqueues the job of a new URL, unless robots.txt is known to disallow it, and
// returns the state that the URL has then. The job comes before the note: see
// Frontier.Found.
func (j *crawlJob) enqueueNew(ctx context.Context, l CrawlFetch) (frontier.State, error) {
	file, err := j.knownRobots(ctx, origin(l.URL))
	if err = cmp.Or(err, ctx.Err()); err != nil { // many links that are not allowed take their time
		return "", err
	}
	if file != nil && j.affords(file.Wildcards()*len(l.URL)) && !file.Allowed(l.URL) {
		return frontier.Disallowed, nil
	}
	// Allow gets hosts and no words such as SameHost, which would mean another host there.
	l.Crawl, l.Allow, l.Run, l.From, l.Anew = j.page.Crawl, j.hosts, j.run.Name, j.page.URL, false
	if err := j.enqueue(ctx, l); err != nil {
		return "", fmt.Errorf("%s leads to %s: %w", j.page.URL, l.URL, err)
	}
	return frontier.Waiting, nil
}
