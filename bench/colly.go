package main

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gocolly/colly/v2"

	"github.com/headgate/headgate/internal/crawlsite"
)

// collyMargin is as headgate's.
const collyMargin = 20 * time.Millisecond

// crawlWithColly crawls the site as its documentation has it: robots.txt obeyed,
// a rule for each host with the interval that headgate's config says, sitemaps
// read, and what is answered with 429 asked for again after Retry-After.
func crawlWithColly(proxy string) error {
	c := colly.NewCollector(
		colly.UserAgent("examplebot/1.0"), colly.Async(true), colly.MaxDepth(21),
		colly.AllowedDomains(crawlsite.Hosts...),
	)
	c.IgnoreRobotsTxt = false
	if err := c.SetProxy(proxy); err != nil {
		return err
	}
	for _, host := range crawlsite.Hosts {
		delay := 200 * time.Millisecond
		if host == crawlsite.Slow {
			delay = 400 * time.Millisecond
		}
		if err := c.Limit(&colly.LimitRule{DomainGlob: host, Parallelism: 1, Delay: delay + collyMargin}); err != nil {
			return err
		}
	}
	c.OnHTML("a[href]", func(e *colly.HTMLElement) {
		to, _, _ := strings.Cut(e.Attr("href"), "#") // which counts as another page there
		_ = e.Request.Visit(to)                      // an error means that it is not to be visited, or has been
	})
	c.OnXML("//url/loc", func(e *colly.XMLElement) { _ = e.Request.Visit(e.Text) })
	c.OnError(func(r *colly.Response, _ error) {
		if r.StatusCode == http.StatusTooManyRequests {
			seconds, _ := strconv.Atoi(r.Headers.Get("Retry-After"))
			time.Sleep(time.Duration(seconds) * time.Second)
			_ = r.Request.Retry() // whose errors come here
		}
	})
	for _, url := range []string{crawlsite.Seed, crawlsite.Sitemap} {
		if err := c.Visit(url); err != nil {
			return err
		}
	}
	c.Wait()
	return nil
}
