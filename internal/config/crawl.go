package config

import (
	"cmp"
	"fmt"
	"os"
	"regexp"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/tasks/warc"
)

// Crawl says how crawl:fetch jobs show themselves, and what they keep. Where
// they may go, and how, is what HTTP says of all calls.
type Crawl struct {
	// Agent is the User-Agent; its part before the slash is the name that
	// robots.txt knows the crawler by. The zero value means `headgate`.
	Agent string `yaml:"agent"`
	// Dir is the folder that pages are archived in, as WARC. It must exist. The
	// zero value means not kept.
	Dir string `yaml:"dir"`
	// MaxPage is how much of a page is read. The zero value means tasks.DefaultMaxPage.
	MaxPage Size `yaml:"max_page"`
	// MaxPages is how many URLs a run of a crawl may find. The zero value means
	// tasks.DefaultMaxPages.
	MaxPages int `yaml:"max_pages"`
	// MaxHostPages is how many of them may be on one host. The zero value means
	// tasks.DefaultMaxHostPages.
	MaxHostPages int `yaml:"max_host_pages"`
	// Include are regular expressions: links are followed whose URLs match one of
	// them. The zero value means all of the crawl's hosts.
	Include []string `yaml:"include"`
	// Exclude are regular expressions: links whose URLs match one of them are not
	// followed. The zero value means none.
	Exclude []string `yaml:"exclude"`
}

// Handler is the handler of crawl:fetch jobs, but for what is in Redis. The error
// says if the folder cannot be used.
func (c Crawl) Handler(calls *tasks.HTTPHandler) (*tasks.CrawlHandler, error) {
	h := &tasks.CrawlHandler{
		HTTP: calls, Agent: c.Agent, PutBack: scheduler.RetryAfter,
		MaxPage: int64(c.MaxPage), MaxPages: c.MaxPages, MaxHostPages: c.MaxHostPages,
	}
	for to, patterns := range map[*[]*regexp.Regexp][]string{&h.Include: c.Include, &h.Exclude: c.Exclude} {
		for _, text := range patterns {
			pattern, err := regexp.Compile(text)
			if err != nil {
				return nil, fmt.Errorf("crawl: %q: %w", text, err)
			}
			*to = append(*to, pattern)
		}
	}
	if c.Dir == "" {
		return h, nil
	}
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("crawl.dir: %q: want a folder that is there", c.Dir)
	}
	h.Archive = &warc.Folder{Dir: c.Dir, Info: []warc.Field{
		{Name: "software", Value: "headgate"},
		{Name: "format", Value: "WARC File Format 1.1"},
		{Name: "robots", Value: "classic"},
		{Name: "http-header-user-agent", Value: cmp.Or(c.Agent, "headgate")},
	}}
	return h, nil
}

// String says in a line what crawls do beyond the zero value; empty if that is
// nothing.
func (c Crawl) String() string {
	return inWords([][2]string{{"as", c.Agent}, {"pages archived in", c.Dir}})
}

var agentForm = regexp.MustCompile(`^[A-Za-z_-]+[ -~]*$`)

func (d *decoder) checkCrawl(c Crawl) {
	d.want(agentForm.MatchString(c.Agent), "crawl.agent", "%q: want a name and what else there is to say, such as examplebot/1.0 (+https://example.com/bot)", c.Agent)
	d.want(c.MaxPages >= 1, "crawl.max_pages", "%d: want how many pages a crawl may have, at least 1", c.MaxPages)
	d.want(c.MaxHostPages >= 1, "crawl.max_host_pages", "%d: want how many pages a crawl may have of a host, at least 1", c.MaxHostPages)
	for field, patterns := range map[string][]string{"crawl.include": c.Include, "crawl.exclude": c.Exclude} {
		for _, text := range patterns {
			if _, err := regexp.Compile(text); err != nil || text == "" {
				d.errorf(field, `%q: want a regular expression such as ^https://example\.com/docs/`, text)
			}
		}
	}
	d.want(c.Dir != "", "crawl.dir", `"": want a folder; leave it out to keep no pages`)
}
