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

	"golang.org/x/net/html/charset"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
)

// The limits of sitemaps.org. A larger site lists several sitemaps in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20 // unpacked bytes
)

// Sitemap holds the canonical URLs of a sitemap, in its order and with duplicates.
type Sitemap struct {
	Pages []string
	// Sitemaps are the entries of a sitemap index.
	Sitemaps []string
	// Truncated reports that the sitemap has more than MaxSitemapEntries. The others are left out.
	Truncated bool
}

// ReadSitemap reads a sitemap that was fetched from the URL: XML, or plain text with one URL a line,
// gzipped or not. It leaves out entries whose URL cannot be crawled, but not entries on other hosts,
// which sitemaps.org forbids.
//
// It returns an error if the sitemap has no URL. It also returns one, with the entries before it, if
// the gzip data or the XML are corrupt, the sitemap is longer than MaxSitemapSize, a line of plain
// text is longer than 64 KB, or reading fails.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := sitemapReader{url: url}
	err := s.read(text)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		err = fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	if err == nil && len(s.Pages)+len(s.Sitemaps) == 0 {
		err = errors.New("no URL found: want urlset or sitemapindex in XML, or one URL a line")
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
	for lines.Scan() && !s.Truncated {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			s.count()
			s.add(&s.Pages, "", line) // only absolute URLs: any text is a relative one
		}
	}
	return lines.Err()
}

func (s *sitemapReader) count() {
	s.entries++
	s.Truncated = s.entries > MaxSitemapEntries
}

// add appends a URL if it can be crawled.
func (s *sitemapReader) add(to *[]string, base, loc string) {
	if loc = strings.TrimSpace(loc); s.Truncated || loc == "" {
		return
	}
	if url, err := Canonical(base, loc); err == nil {
		*to = append(*to, url)
	}
}

// xmlDeclaration matches the declaration at the beginning of XML, and its encoding.
var xmlDeclaration = regexp.MustCompile(`^\s*<\?xml(?:[^>]*?encoding\s*=\s*["']([^"']+)["'])?[^>]*>`)

// readXML reads the entries of a sitemap or an index. Many sitemaps are not valid XML. They have a
// bare &, an entity of HTML, bytes that are not UTF-8, or unbalanced tags. Such a mistake must not
// affect the other entries, so readXML decodes no elements, and looks at one tag at a time.
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
	d := xml.NewDecoder(transform.NewReader(text, runes.Map(func(r rune) rune { // also replaces invalid UTF-8
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	})))
	d.Strict = false
	var (
		root, entry xml.Name  // the open root element, and the last entry
		to          *[]string // where the entry's URL goes; nil after its URL
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
			switch {
			case t.Name.Local == "url":
				s.count()
				entry, to = t.Name, &s.Pages
			case t.Name.Local == "sitemap":
				s.count()
				entry, to = t.Name, &s.Sitemaps
			case t.Name.Local == "loc" && t.Name.Space == entry.Space && to != nil: // and not <image:loc>
				inLoc, loc = true, nil
			}
		case xml.CharData:
			if inLoc {
				loc = append(loc, t...)
			}
		case xml.EndElement:
			if inLoc {
				s.add(to, s.url, string(loc))
				to, inLoc = nil, false
			}
			if t.Name == root {
				root = xml.Name{}
			}
		}
	}
	return nil
}
