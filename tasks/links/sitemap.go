package links

import (
	"bufio"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/html/charset"
)

// The bounds of sitemaps.org: entries of one sitemap, and its bytes unpacked. A site
// that has more splits them over several sitemaps and lists those in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20
)

// Sitemap is what a sitemap lists, in its order. Entries are not compared: one that
// is there twice comes twice.
type Sitemap struct {
	Pages []Entry
	// Sitemaps are others, of a sitemap index. To follow them is for the caller,
	// who has to see to it that this comes to an end.
	Sitemaps []Entry
}

// Entry is one URL, in canonical form.
type Entry struct {
	URL string
	// Modified is when it last changed, as the sitemap says: many say the time of
	// the sitemap. The zero value means not said, or not in a form that is known.
	Modified time.Time
}

// ReadSitemap reads the sitemap that was fetched from the URL: XML, or plain
// text with one URL a line, gzipped or not. Entries that are no URLs to crawl,
// or after MaxSitemapEntries, are left out. The error is about what broke off
// the reading; the entries before it are returned all the same. That is XML or gzip
// that is broken, more than MaxSitemapSize bytes, a line of plain text over 64 KB, or
// what the reader fails with.
//
// Entries on other hosts are not left out, although sitemaps.org wants none.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	var s Sitemap
	in := bufio.NewReader(text)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return s, fmt.Errorf("sitemap: %w", err)
		}
		in = bufio.NewReader(unpacked)
	}
	in = bufio.NewReader(&bounded{in, MaxSitemapSize})
	if start, _ := in.Peek(3); string(start) == "\xef\xbb\xbf" {
		_, _ = in.Discard(len(start))
	}
	read := s.readLines
	if start, _ := in.Peek(512); strings.HasPrefix(strings.TrimSpace(string(start)), "<") {
		read = s.readXML
	}
	if err := read(url, in); err != nil && !errors.Is(err, errEnough) {
		return s, fmt.Errorf("sitemap: %w", err)
	}
	return s, nil
}

// errEnough ends the reading of a sitemap with too many entries. It is not told: what
// was read is as much as a sitemap may have.
var errEnough = errors.New("enough entries")

// readXML goes from entry to entry and keeps nothing else, so it takes memory for
// one entry besides the URLs. What the root element is called does not matter: a
// sitemap and an index differ in their entries.
func (s *Sitemap) readXML(url string, in io.Reader) error {
	dec := xml.NewDecoder(in)
	dec.CharsetReader = charset.NewReaderLabel
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "url" && start.Name.Local != "sitemap" {
			continue
		}
		var e struct {
			Loc     string `xml:"loc"`
			Lastmod string `xml:"lastmod"`
		}
		if err := dec.DecodeElement(&e, &start); err != nil {
			return err
		}
		to := &s.Pages
		if start.Name.Local == "sitemap" {
			to = &s.Sitemaps
		}
		if err := s.add(to, url, e.Loc, e.Lastmod); err != nil {
			return err
		}
	}
}

// readLines reads a sitemap of plain text: a URL a line. A line that is no URL by itself
// is taken for a relative one, although sitemaps.org has only absolute ones.
func (s *Sitemap) readLines(url string, in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := s.add(&s.Pages, url, lines.Text(), ""); err != nil {
			return err
		}
	}
	return lines.Err()
}

// add keeps an entry whose URL can be fetched, resolved against the sitemap's own.
// It fails only where there are enough.
func (s *Sitemap) add(to *[]Entry, base, loc, modified string) error {
	loc = strings.TrimSpace(loc)
	url, err := Canonical(base, loc)
	if loc == "" || err != nil {
		return nil // one bad entry does not spoil the others
	}
	if len(s.Pages)+len(s.Sitemaps) >= MaxSitemapEntries {
		return errEnough
	}
	*to = append(*to, Entry{URL: url, Modified: moment(strings.TrimSpace(modified))})
	return nil
}

// moment reads a date as the W3C's note on date and time formats has it, from a year
// to parts of a second, or is the zero time.
func moment(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly, "2006-01", "2006"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	return time.Time{}
}

// bounded is a reader that fails where there is too much, instead of passing
// its beginning off as the whole. It counts what is unpacked: of a sitemap that is
// packed a thousandfold no more is read than of any other.
type bounded struct {
	in   io.Reader
	left int64
}

// Read implements io.Reader. It fails where more comes than a sitemap may have.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	n, err := b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
