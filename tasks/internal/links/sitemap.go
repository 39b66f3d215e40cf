package links

import (
	"bufio"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
)

// The limits of sitemaps.org. A larger site lists several sitemaps in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20 // unpacked bytes
)

// maxSitemapURLs is the maximum length of the URLs of a sitemap in bytes. Each counts with the URL
// against which it is resolved.
const maxSitemapURLs = 16 << 20

// Sitemap holds the canonical URLs of a sitemap, in its order and with duplicates.
type Sitemap struct {
	Pages     []string
	Sitemaps  []string // the entries of a sitemap index
	Truncated bool     // the rest is left out: more than MaxSitemapEntries entries, or more than 16 MiB of URLs
}

// ReadSitemap reads a sitemap that was fetched from the URL: XML, an RSS or Atom feed, or plain
// text with one URL a line, gzipped or not. It leaves out entries for whose URL Canonical returns
// an error. It keeps entries on other hosts, although sitemaps.org forbids such entries.
//
// If the sitemap has no URL, ReadSitemap returns an error. If it is corrupt or longer than
// MaxSitemapSize, ReadSitemap returns an error together with the entries before that point.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := sitemapReader{baseLen: len(url)}
	s.base, _ = whatwg.Parse(url) // the URL of a fetched sitemap is valid
	err := s.read(text)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		err = fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("sitemap: %w", err)
	case len(s.Pages)+len(s.Sitemaps) == 0:
		err = errors.New("sitemap: no URL found: want urlset, sitemapindex, RSS or Atom in XML, or one URL a line")
	}
	return s.Sitemap, err
}

type sitemapReader struct {
	Sitemap
	base    *whatwg.Url
	baseLen int // the length of base
	entries int // number of entries that were read so far, with and without a valid URL
	length  int // the length of their URLs, for maxSitemapURLs
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
	for lines.Scan() && !s.Truncated {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			s.count()
			s.add(&s.Pages, nil, line) // no base, because any text would be a relative URL
		}
	}
	return lines.Err()
}

func (s *sitemapReader) count() {
	s.entries++
	s.Truncated = s.entries > MaxSitemapEntries
}

// add appends the canonical URL of loc to a list, if loc is a valid URL.
func (s *sitemapReader) add(to *[]string, base *whatwg.Url, loc string) {
	if loc = strings.TrimSpace(loc); s.Truncated || loc == "" {
		return
	}
	s.length += s.baseLen + min(len(loc), MaxURL) // resolve rejects longer ones
	if s.Truncated = s.length > maxSitemapURLs; s.Truncated {
		return
	}
	if url, err := resolve(base, loc); err == nil {
		*to = append(*to, url)
	}
}

// xmlDeclaration matches the declaration at the beginning of XML, and its encoding.
var xmlDeclaration = regexp.MustCompile(`^\s*<\?xml(?:[^>]*?encoding\s*=\s*["']([^"']+)["'])?[^>]*>`)

// readXML reads the entries of a sitemap, an index or a feed. Many sitemaps are not valid XML: they
// have a bare &, an entity of HTML, bytes that are not UTF-8, or unbalanced tags. Such a mistake
// must not affect the other entries, so readXML does not decode whole elements, but reads one tag
// at a time.
func (s *sitemapReader) readXML(in *bufio.Reader) error {
	var text io.Reader = in
	if start, _ := in.Peek(512); xmlDeclaration.Match(start) {
		declaration := xmlDeclaration.FindSubmatch(start)
		_, _ = in.Discard(len(declaration[0]))
		if encoding := string(declaration[1]); encoding != "" {
			var err error
			if text, err = charset.NewReaderLabel(encoding, in); err != nil {
				return err
			}
		}
	}
	d := xml.NewDecoder(transform.NewReader(text, runes.Map(func(r rune) rune { // runes.Map also replaces invalid UTF-8
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	})))
	d.Strict = false
	var (
		root, entry xml.Name  // names of the open root element and of the last entry
		to          *[]string // the list for the entry's URL; nil once the URL was read
		loc         []byte
		inLoc       bool
	)
	for !s.Truncated {
		token, err := d.RawToken()
		switch {
		case errors.Is(err, io.EOF) && root.Local != "":
			return fmt.Errorf("unexpected end within <%s>", root.Local)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if root.Local == "" {
				root = t.Name
			}
			switch local := t.Name.Local; {
			case local == "url", local == "item", local == "entry": // of a sitemap, RSS and Atom
				s.count()
				entry, to = t.Name, &s.Pages
			case local == "sitemap":
				s.count()
				entry, to = t.Name, &s.Sitemaps
			case to == nil || t.Name.Space != entry.Space: // outside of an entry, or for example an <image:loc>
			case local == "link" && entry.Local == "entry":
				if href := atomLink(t.Attr); href != "" {
					s.add(to, s.base, href)
					to = nil
				}
			case local == "loc", local == "link" && entry.Local == "item":
				inLoc, loc = true, nil
			}
		case xml.CharData:
			if inLoc {
				loc = append(loc, t...)
			}
		case xml.EndElement:
			if inLoc {
				s.add(to, s.base, string(loc))
				to, inLoc = nil, false
			}
			if t.Name == root {
				root = xml.Name{}
			}
		}
	}
	return nil
}

// atomLink returns the href of an Atom link to the entry's page, or "" for any other link.
func atomLink(attributes []xml.Attr) (href string) {
	for _, a := range attributes {
		switch {
		case a.Name.Local == "rel" && a.Value != "alternate":
			return ""
		case a.Name.Local == "href":
			href = a.Value
		}
	}
	return href
}
