package links

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

// The bounds of sitemaps.org: entries of one sitemap, and its bytes unpacked. A site
// that has more splits them over several sitemaps and lists those in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20
)

// maxToken bounds a tag of a sitemap and what stands between two tags, in bytes: a tag of many
// attributes takes many times as much memory.
const maxToken = 1 << 20

// Sitemap is what a sitemap lists: URLs in canonical form and in its order. They are not
// compared: one that is there twice comes twice.
type Sitemap struct {
	Pages []string
	// Sitemaps are others, of a sitemap index. To follow them is for the caller,
	// who has to see to it that this comes to an end.
	Sitemaps []string
	// More is whether some are left out, as there are more than MaxSitemapEntries.
	More bool
}

// ReadSitemap reads the sitemap that was fetched from the URL: XML, an RSS or Atom feed, or
// plain text with one URL a line, gzipped or not. Entries that are no URLs to crawl are left
// out, and so is all after MaxSitemapEntries, those left out among them. The error says what broke
// off the reading, or that there is no URL at all; the entries before it are returned all the same. Broken
// off are gzip that is damaged, XML that ends within an element, a tag of more than 1 MiB, more
// than MaxSitemapSize bytes, a line of plain text over 64 KB, and what the reader fails with.
//
// Entries on other hosts are not left out, although sitemaps.org wants none.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := reading{url: url}
	err := s.read(text)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		err = fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	if err == nil && len(s.Pages)+len(s.Sitemaps) == 0 {
		err = errors.New("it lists no URL: want urlset, sitemapindex, RSS or Atom, or one URL a line")
	}
	if err != nil {
		err = fmt.Errorf("sitemap: %w", err)
	}
	return s.Sitemap, err
}

// reading is a sitemap as far as it has been read.
type reading struct {
	Sitemap
	url     string
	entries int // that it has had
}

func (s *reading) read(text io.Reader) error {
	// By its first bytes, and not by its name or its Content-Type: servers say gzip of
	// what their client has unpacked already, and nothing of what they have not.
	in := bufio.NewReader(text)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		in = bufio.NewReader(unpacked)
	}
	// What is unpacked counts: a sitemap can be packed a thousandfold.
	in = bufio.NewReader(http.MaxBytesReader(nil, io.NopCloser(in), MaxSitemapSize))
	// A byte order mark, which editors put before a text and no URL begins with.
	if start, _ := in.Peek(3); string(start) == "\xef\xbb\xbf" {
		_, _ = in.Discard(len(start))
	}
	if start, _ := in.Peek(512); strings.HasPrefix(strings.TrimSpace(string(start)), "<") {
		return s.readXML(in)
	}
	return s.readLines(in)
}

// take keeps an entry whose URL can be fetched: one bad entry does not spoil the others,
// but counts, as it costs as much. It reports false where there is no room for it.
func (s *reading) take(to *[]string, base, loc string) bool {
	s.entries++
	if s.entries > MaxSitemapEntries {
		s.More = true
		return false
	}
	if loc = strings.TrimSpace(loc); loc != "" {
		if url, err := Canonical(base, loc); err == nil {
			*to = append(*to, url)
		}
	}
	return true
}

// entries are the elements that stand for a URL, by their names: whether that is another
// sitemap. Those of RSS and Atom feeds are among them, because sitemaps.org takes feeds.
var entries = map[string]bool{"url": false, "sitemap": true, "item": false, "entry": false}

// readXML goes from tag to tag and keeps the URL of an entry, and nothing else, so it takes
// memory for one entry besides the URLs. The root element's name does not matter: a
// sitemap and an index differ in their entries.
//
// It reads tags as browsers do, and takes what is no XML for text. Many sitemaps have a
// flaw: a bare &, an entity of HTML, a byte that is not UTF-8. A flaw costs one entry,
// not all that follow.
func (s *reading) readXML(in *bufio.Reader) error {
	text, err := decoded(in)
	if err != nil {
		return err
	}
	z := html.NewTokenizer(text)
	z.SetMaxBuf(maxToken)
	z.AllowCDATA(true)
	e := entry{s: s}
	for !s.More {
		switch z.Next() {
		case html.ErrorToken:
			return e.end(z.Err())
		case html.StartTagToken:
			e.start(z, false)
		case html.SelfClosingTagToken:
			e.start(z, true)
		case html.EndTagToken:
			name, _ := z.TagName()
			e.close(local(name))
		case html.TextToken:
			if e.reads {
				e.loc = append(e.loc, z.Raw()...)
			}
		}
	}
	return nil
}

// xmlStart is the declaration that XML may begin with.
var xmlStart = regexp.MustCompile(`^\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']+)["']`)

// decoded reads XML as UTF-8, in whatever encoding its declaration names.
func decoded(in *bufio.Reader) (io.Reader, error) {
	start, _ := in.Peek(512)
	if found := xmlStart.FindSubmatch(start); found != nil {
		return charset.NewReaderLabel(string(found[1]), in)
	}
	return in, nil
}

// local is the name of a tag without its namespace.
func local(name []byte) string { return string(name[bytes.LastIndexByte(name, ':')+1:]) }

// entry is the entry of a sitemap that is being read.
type entry struct {
	s     *reading
	root  string    // the name of the first element, until its end
	name  string    // of the entry, or "" outside of one
	to    *[]string // where its URL goes
	depth int       // of the element at hand within it
	loc   []byte    // its URL so far
	reads bool      // whether the text at hand is its URL
}

// start takes in the start of an element. A start of another entry ends the one at hand,
// whose own end is missing.
func (e *entry) start(z *html.Tokenizer, closed bool) {
	raw, more := z.TagName()
	name := local(raw)
	z.NextIsNotRawText() // in XML a title or a style is an element as any other
	if e.root == "" && !closed {
		e.root = name
	}
	other, isEntry := entries[name]
	switch {
	case isEntry && (e.name == "" || name == e.name):
		e.finish()
		e.name, e.depth, e.to = name, 0, &e.s.Pages
		if other {
			e.to = &e.s.Sitemaps
		}
		if closed {
			e.finish()
		}
		return
	case e.name == "" || e.depth != 0:
	case name == "loc" && (e.name == "url" || e.name == "sitemap"), name == "link" && e.name == "item":
		e.reads, e.loc = !closed, nil
	case name == "link" && e.name == "entry":
		e.atomLink(z, more)
	}
	if !closed {
		e.depth++
	}
}

// atomLink takes the URL of an Atom entry: that of its link which is the page itself.
func (e *entry) atomLink(z *html.Tokenizer, more bool) {
	rel, href := "alternate", ""
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "rel":
			rel = string(value)
		case "href":
			href = string(value)
		}
	}
	if rel == "alternate" && len(e.loc) == 0 {
		e.loc = []byte(strings.ReplaceAll(href, "&", "&amp;")) // the tokenizer has read its entities
	}
}

// close takes in the end of an element.
func (e *entry) close(name string) {
	e.reads = false
	switch {
	case name == e.name:
		e.finish()
	case e.name != "":
		e.depth = max(e.depth-1, 0)
	case name == e.root:
		e.root = ""
	}
}

// finish takes the entry at hand, if there is one.
func (e *entry) finish() {
	if e.name != "" {
		e.s.take(e.to, e.s.url, references(e.loc))
	}
	e.name, e.loc, e.reads = "", nil, false
}

// end says why there is nothing more to read.
func (e *entry) end(err error) error {
	switch {
	case errors.Is(err, html.ErrBufferExceeded):
		return fmt.Errorf("a tag or a text of more than %d bytes", maxToken)
	case !errors.Is(err, io.EOF):
		return err
	case e.root != "":
		return fmt.Errorf("it breaks off within <%s>", e.root)
	}
	return nil
}

// references puts characters for the references that XML knows, and CDATA's text for CDATA. Those of HTML are left
// as they are: in "?a=1&copy=2" the & is one that should have been written &amp;.
func references(text []byte) string {
	t := string(text)
	if inner, ok := strings.CutPrefix(strings.TrimSpace(t), "<![CDATA["); ok {
		return strings.TrimSuffix(inner, "]]>")
	}
	if !strings.Contains(t, "&") {
		return t
	}
	return reference.ReplaceAllStringFunc(t, html.UnescapeString)
}

var reference = regexp.MustCompile(`&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});`)

// readLines reads a sitemap of plain text: an absolute URL a line. Relative ones are
// left out, as any text would be one. Empty lines are no entries.
func (s *reading) readLines(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !s.take(&s.Pages, "", line) {
			return nil
		}
	}
	return lines.Err()
}
