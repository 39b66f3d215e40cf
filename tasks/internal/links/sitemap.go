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

// The limits of sitemaps.org. A larger site lists several sitemaps in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20 // unpacked bytes
)

// maxToken is the maximum size of a tag, and of the text between two tags, in bytes: see maxTag.
const maxToken = 1 << 20

// Sitemap holds the canonical URLs of a sitemap, in its order and with duplicates.
type Sitemap struct {
	Pages []string
	// Sitemaps are the entries of a sitemap index.
	Sitemaps []string
	// More reports that the sitemap has more than MaxSitemapEntries. The others are left out.
	More bool
}

// ReadSitemap reads a sitemap that was fetched from the URL: XML, an RSS or Atom feed, or plain
// text with one URL a line, gzipped or not. It leaves out entries whose URL cannot be crawled, but
// not entries on other hosts, which sitemaps.org forbids.
//
// It returns an error if the sitemap has no URL. It also returns one, with the entries before it,
// if the gzip data are corrupt, the XML ends within an element, a tag is longer than 1 MiB, a line
// of plain text is longer than 64 KB, the sitemap is longer than MaxSitemapSize, or text fails.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := sitemapReader{url: url}
	err := s.read(text)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		err = fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	if err == nil && len(s.Pages)+len(s.Sitemaps) == 0 {
		err = errors.New("no URL found: want urlset, sitemapindex, RSS or Atom, or one URL a line")
	}
	if err != nil {
		err = fmt.Errorf("sitemap: %w", err)
	}
	return s.Sitemap, err
}

type sitemapReader struct {
	Sitemap
	url     string
	entries int // read so far
}

func (s *sitemapReader) read(text io.Reader) error {
	// File names and Content-Types are often wrong about gzip.
	in := bufio.NewReader(text)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		in = bufio.NewReader(unpacked)
	}
	in = bufio.NewReader(http.MaxBytesReader(nil, io.NopCloser(in), MaxSitemapSize))
	if start, _ := in.Peek(3); string(start) == "\xef\xbb\xbf" { // a byte order mark
		_, _ = in.Discard(len(start))
	}
	if start, _ := in.Peek(512); strings.HasPrefix(strings.TrimSpace(string(start)), "<") {
		return s.readXML(in)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() && !s.More {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			s.add(&s.Pages, "", line) // only absolute URLs: any text is a relative one
		}
	}
	return lines.Err()
}

// add appends the URL of an entry, if it can be crawled, and counts the entry in any case.
func (s *sitemapReader) add(to *[]string, base, loc string) {
	s.entries++
	s.More = s.entries > MaxSitemapEntries
	if loc = strings.TrimSpace(loc); s.More || loc == "" {
		return
	}
	if url, err := Canonical(base, loc); err == nil {
		*to = append(*to, url)
	}
}

// xmlEncoding matches the declaration at the beginning of XML.
var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]*?encoding\s*=\s*["']([^"']+)["']`)

// readXML reads the entries of a sitemap, an index or a feed. It uses a tokenizer for HTML, because
// many sitemaps are not valid XML: they have a bare &, an entity of HTML, or a byte that is not
// UTF-8. Such a mistake affects only one entry.
func (s *sitemapReader) readXML(in *bufio.Reader) error {
	var text io.Reader = in
	if start, _ := in.Peek(512); xmlEncoding.Match(start) {
		var err error
		if text, err = charset.NewReaderLabel(string(xmlEncoding.FindSubmatch(start)[1]), in); err != nil {
			return err
		}
	}
	z := html.NewTokenizer(text)
	z.SetMaxBuf(maxToken)
	z.AllowCDATA(true)
	var (
		root, entry string    // the open root element and entry
		to          *[]string // where the entry's URL goes; nil after its URL
		loc         []byte
		inLoc       bool
	)
	end := func() { // adds the entry's URL, once
		if to != nil {
			s.add(to, s.url, unescape(loc))
		}
		to, loc, inLoc = nil, nil, false
	}
	for !s.More {
		kind := z.Next()
		raw, attributes := z.TagName()
		name := string(raw)
		switch kind {
		case html.ErrorToken:
			switch err := z.Err(); {
			case errors.Is(err, html.ErrBufferExceeded):
				return fmt.Errorf("a tag or a text of more than %d bytes", maxToken)
			case !errors.Is(err, io.EOF):
				return err
			case root != "":
				return fmt.Errorf("unexpected end within <%s>", root)
			}
			return nil
		case html.StartTagToken, html.SelfClosingTagToken:
			z.NextIsNotRawText() // a title or a style is an element like any other
			prefix, local := cutPrefix(name)
			entryPrefix, entryName := cutPrefix(entry)
			if root == "" && kind == html.StartTagToken {
				root = name
			}
			switch {
			case local == "url", local == "sitemap", local == "item", local == "entry":
				end() // if the end of the entry before is missing
				entry, to = name, &s.Pages
				if local == "sitemap" {
					to = &s.Sitemaps
				}
				if kind == html.SelfClosingTagToken {
					end()
				}
			case to == nil || prefix != entryPrefix: // for example the <image:loc> of a picture
			case local == "loc", local == "link" && entryName == "item":
				inLoc = kind == html.StartTagToken
			case local == "link" && entryName == "entry" && attributes && len(loc) == 0:
				loc = atomLink(z)
			}
		case html.EndTagToken:
			if inLoc || name == entry {
				end()
			}
			if name == root {
				root = ""
			}
		case html.TextToken:
			if inLoc {
				loc = append(loc, z.Raw()...)
			}
		}
	}
	return nil
}

// cutPrefix cuts the name of a tag at its namespace's prefix.
func cutPrefix(name string) (prefix, local string) {
	i := strings.LastIndexByte(name, ':') + 1
	return name[:i], name[i:]
}

// atomLink returns the href of an Atom link to the entry's page, or nil for any other link.
func atomLink(z *html.Tokenizer) []byte {
	rel, href := "alternate", ""
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch string(key) {
		case "rel":
			rel = string(value)
		case "href":
			href = string(value)
		}
	}
	if rel != "alternate" {
		return nil
	}
	return []byte(strings.ReplaceAll(href, "&", "&amp;")) // the tokenizer has unescaped it
}

// unescape resolves CDATA and the character references of XML, but not those of HTML: in
// "?a=1&copy=2" the & should have been written as &amp;.
func unescape(text []byte) string {
	if inner, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("<![CDATA[")); ok {
		return string(bytes.TrimSuffix(inner, []byte("]]>")))
	}
	return xmlReference.ReplaceAllStringFunc(string(text), html.UnescapeString)
}

var xmlReference = regexp.MustCompile(`&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});`)
