package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
)

// fetch fetches the page with one request, saves the body, enqueues the links, and then records the
// page's state. If the worker dies before the end, the job repeats all steps.
func (j *crawlJob) fetch(ctx context.Context, file *robots.File) error {
	if err := j.pace(ctx, file); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, DefaultTimeout)
	defer cancel()
	resp, err := j.get(limited, j.page.URL)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer resp.drain(0)
	j.result.Status = resp.StatusCode
	unexpected := resp.status.unexpected(nil)
	switch {
	case resp.status.verdict != VerdictByStatus:
		return unexpected
	case redirects(resp.StatusCode):
		to := j.sitemaps(file)
		target, err := j.target(resp)
		if err != nil {
			j.result.Reason = err.Error()
			return j.finish(ctx, file, frontier.Missing, to, 0)
		}
		j.result.Reason = "it leads to " + target.URL
		if state := j.state(file, target); state != frontier.Waiting {
			j.result.Reason += ", which is left out: " + state
		}
		return j.finish(ctx, file, frontier.Redirected, append([]CrawlFetch{target}, to...), 0)
	case unexpected == nil:
		to, unread, err := j.read(ctx, resp)
		if err != nil {
			return err
		}
		to = append(j.sitemaps(file), to...)
		j.result.Links, j.result.Omitted = len(to), unread
		return j.finish(ctx, file, frontier.Fetched, to, unread)
	case resp.StatusCode >= http.StatusBadRequest && !resp.status.permanent:
		return unexpected
	}
	j.result.Reason = resp.status.Error()
	return j.finish(ctx, file, frontier.Missing, nil, 0)
}

// target returns the page that a redirect leads to, or why the job cannot follow the redirect. If a
// sitemap redirects, the target counts as a sitemap only if an index listed the redirecting URL.
func (j *crawlJob) target(resp *openResponse) (CrawlFetch, error) {
	next, err := resp.target()
	switch {
	case err != nil:
	case j.page.Hops >= MaxRedirects:
		err = fmt.Errorf("it leads to %s: that would be redirect %d, want at most %d", next, j.page.Hops+1, MaxRedirects)
	}
	return CrawlFetch{URL: next, Depth: j.page.Depth, Hops: j.page.Hops + 1, Sitemap: j.page.Sitemap && j.page.Hops > 0}, err
}

// sitemaps returns the sitemaps that robots.txt names, if their hosts are among the crawl's hosts.
// A crawl treats these sitemaps as links of every page of the origin.
func (j *crawlJob) sitemaps(file *robots.File) (to []CrawlFetch) {
	for _, text := range file.Sitemaps {
		url, err := links.Canonical(origin(j.page.URL)+"/", text) // the URLs should be absolute, but many are not
		if err == nil && links.Within(url, j.hosts) {
			to = append(to, CrawlFetch{URL: url, Depth: j.childDepth(), Sitemap: true})
		}
	}
	return to
}

// childDepth returns the Depth of the page's links, one less than the page's Depth. The entries of
// a sitemap have the Depth of the sitemap.
func (j *crawlJob) childDepth() int {
	if j.page.Sitemap {
		return j.page.Depth
	}
	return j.page.Depth - 1
}

// read reads up to MaxPage bytes of the body, finds its links, and saves the body if there is a
// SaveDir and the page is not noindex. unread is the number of links beyond the maximum for a page.
func (j *crawlJob) read(ctx context.Context, resp *openResponse) (to []CrawlFetch, unread int, err error) {
	size := cmp.Or(max(0, j.MaxPage), DefaultMaxPage)
	body, err := io.ReadAll(io.LimitReader(resp, size+1)) // one byte more shows that the page is longer
	if err != nil {
		return nil, 0, err
	}
	if int64(len(body)) > size {
		body, j.result.Truncated = body[:size], true
	}
	j.result.Length, j.result.Type = len(body), resp.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(j.result.Type)
	if media == "" {
		media, _, _ = mime.ParseMediaType(http.DetectContentType(body))
	}
	isSitemap := j.page.Sitemap || (media == "text/xml" || media == "application/xml") && sitemapStart.Match(body[:min(len(body), 1024)])
	html := body
	if isSitemap || media != "text/html" && media != "application/xhtml+xml" {
		html = nil // only HTML has links and directives in its text
	}
	page := links.FromPage(j.page.URL, j.result.Type, resp.Header.Values("X-Robots-Tag"), robots.ProductToken(j.agent()), html)
	if page.Truncated {
		j.result.Reason = "a tag or a script of more than 2 MiB: later links are left out"
	}
	for _, url := range page.Links {
		to = append(to, CrawlFetch{URL: url, Depth: j.childDepth()})
	}
	unread = page.Omitted
	if isSitemap {
		to, unread, err = j.entries(body)
	}
	if err = cmp.Or(ctx.Err(), err); err == nil && !page.NoIndex && j.SaveDir != "" {
		j.result.Saved, j.file, _, err = saveFile(j.SaveDir, j.page.Crawl+"/", bytes.NewReader(body))
	}
	return to, unread, err
}

// sitemapStart matches the beginning of a sitemap's root element.
var sitemapStart = regexp.MustCompile("<(?:urlset|sitemapindex)")

// entries returns the URLs of a sitemap, or an error if there are none. All entries beyond the
// maximum together add 1 to unread, because their number is unknown. Each sitemap index adds 1 to
// Hops, so that a chain of indexes ends.
func (j *crawlJob) entries(body []byte) (to []CrawlFetch, unread int, err error) {
	found, err := links.ReadSitemap(j.page.URL, bytes.NewReader(body))
	switch {
	case err != nil && len(found.Pages)+len(found.Sitemaps) == 0:
		return nil, 0, fmt.Errorf("%s: %w: %w", j.page.URL, err, asynq.SkipRetry)
	case err != nil:
		j.result.Reason = err.Error()
	case found.Truncated:
		j.result.Reason = fmt.Sprintf("a sitemap of more than %d entries or 16 MiB of URLs: the others are left out", links.MaxSitemapEntries)
		unread++
	}
	if n := len(found.Sitemaps); n > 0 && j.page.Hops >= MaxRedirects {
		unread += n
		j.result.Reason = fmt.Sprintf("%d sitemaps are left out: %d sitemap indexes and redirects led here", n, j.page.Hops)
		found.Sitemaps = nil
	}
	for _, url := range found.Sitemaps {
		to = append(to, CrawlFetch{URL: url, Depth: j.page.Depth, Sitemap: true, Hops: j.page.Hops + 1})
	}
	for _, url := range found.Pages {
		to = append(to, CrawlFetch{URL: url, Depth: j.page.Depth})
	}
	return to, unread, nil
}

// foundBatch is the maximum number of URLs in one call of Found, because a call blocks Redis.
const foundBatch = 500

// finish enqueues the page's links, and then records the page's state. If a newer crawl of the same
// name has started, finish stops and returns nil.
func (j *crawlJob) finish(ctx context.Context, file *robots.File, state frontier.State, to []CrawlFetch, unread int) error {
	j.result.Outcome = state
	for batch := range slices.Chunk(to, foundBatch) {
		found := make([]frontier.Link, len(batch))
		for i, to := range batch {
			found[i] = frontier.Link{URL: to.URL, State: j.state(file, to)}
		}
		states, err := j.frontier.Found(ctx, j.crawl, j.page.URL, found)
		if err != nil || len(states) == 0 {
			return err
		}
		var waiting []CrawlFetch // in order, so that pages are fetched in the order of the links
		for i, state := range states {
			switch state {
			case frontier.MaxPages, frontier.MaxHostPages:
				j.result.Omitted++
				j.result.Reason = fmt.Sprintf("the crawl may have %d pages, and %d of a host", j.frontier.MaxURLs, j.frontier.MaxHostURLs)
			case frontier.Waiting:
				waiting = append(waiting, batch[i])
			}
		}
		if err := j.enqueue(ctx, waiting); err != nil {
			return err
		}
		j.result.New += len(waiting)
	}
	if err := j.index(); err != nil {
		return err
	}
	return j.frontier.Done(ctx, j.crawl, j.page.URL, state, j.file, unread)
}

// maxRobotsSteps is the maximum of File.Steps for the links of one page, which is about 0.2 s of work.
// The jobs of the remaining links check robots.txt before they fetch.
const maxRobotsSteps = 200_000_000

// state returns the state of a URL that the page leads to: Waiting if the URL needs a job, or the
// reason for leaving the URL out.
func (j *crawlJob) state(file *robots.File, to CrawlFetch) frontier.State {
	matches := func(pattern *regexp.Regexp) bool { return pattern.MatchString(to.URL) }
	included := len(j.Include) == 0 || slices.ContainsFunc(j.Include, matches)
	switch {
	case !links.Within(to.URL, j.hosts):
		return frontier.OtherHost
	case !to.Sitemap && (!included || slices.ContainsFunc(j.Exclude, matches)):
		return frontier.Excluded
	case to.Depth < 0:
		return frontier.TooDeep
	case strings.HasPrefix(to.URL, origin(j.page.URL)+"/") && file.Steps < maxRobotsSteps && !file.Allowed(to.URL):
		return frontier.Disallowed // by the file of this origin
	}
	return frontier.Waiting
}
