package links

import (
	"bufio"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/html/charset"
)

// The bounds of sitemaps.org: entries of one sitemap, and its bytes unpacked. A site
// that has more splits them over several sitemaps and lists those in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20
)

const (
	// maxSitemapWork bounds the bytes of a sitemap's URLs, each with that of the sitemap.
	maxSitemapWork = 16 << 20
	// maxTokens and maxToken bound its tags and what stands between them: in number, and
	// in bytes, as a tag of many attributes takes many times as much memory.
	maxTokens = 5_000_000
	maxToken  = 1 << 20
)

// Sitemap is what a sitemap lists: URLs in canonical form and in its order. They are not
// compared: one that is there twice comes twice.
type Sitemap struct {
	Pages []string
	// Sitemaps are others, of a sitemap index. To follow them is for the caller,
	// who has to see to it that this comes to an end.
	Sitemaps []string
	// More is whether some are left out, as there are more than MaxSitemapEntries, or their
	// URLs are longer than 16 MiB, that of the sitemap counted with each.
	More bool
}

// ReadSitemap reads the sitemap that was fetched from the URL: XML, or plain
// text with one URL a line, gzipped or not. Entries that are no URLs to crawl are left
// out, as is all after MaxSitemapEntries, those left out among them. The error is about
// what broke off the reading; the entries before it are returned all the same. That is
// XML or gzip that is broken, XML that is nested a hundred deep, more than five million tags,
// or one of more than 1 MiB, more than MaxSitemapSize bytes, a line of plain text over 64 KB, or what the reader fails with.
//
// Entries on other hosts are not left out, although sitemaps.org wants none.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := reading{url: url}
	err := s.read(text)
	if err != nil {
		err = fmt.Errorf("sitemap: %w", err)
	}
	return s.Sitemap, err
}

// reading is a sitemap as far as it has been read.
type reading struct {
	Sitemap
	url           string
	entries, work int // that it has had, of what it may have
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
	all := &bounded{in: in, left: MaxSitemapSize, token: MaxSitemapSize}
	in = bufio.NewReader(all)
	// A byte order mark, which editors put before a text and no URL begins with.
	if start, _ := in.Peek(3); string(start) == "\xef\xbb\xbf" {
		_, _ = in.Discard(len(start))
	}
	if start, _ := in.Peek(512); strings.HasPrefix(strings.TrimSpace(string(start)), "<") {
		return s.readXML(in, all)
	}
	return s.readLines(in)
}

// take keeps an entry whose URL can be fetched: one bad entry does not spoil the others,
// but counts, as it costs as much. It reports false where there is no room for it.
func (s *reading) take(to *[]string, base, loc string) bool {
	s.entries++
	s.work += len(base) + len(loc)
	if s.entries > MaxSitemapEntries || s.work > maxSitemapWork {
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

// readXML goes from tag to tag and keeps the text of a loc right within an entry, and
// nothing else, so it takes memory for one entry besides the URLs. What the root element is
// called does not matter: a sitemap and an index differ in their entries, and one file can
// have both, though none should.
func (s *reading) readXML(in io.Reader, all *bounded) error {
	// It stays strict: what is no XML is most likely an error page, and worth a word.
	dec := xml.NewDecoder(in)
	dec.CharsetReader = charset.NewReaderLabel
	var to *[]string // of the entry that it is in
	var loc []byte
	var depth, entry int // of elements, and of that entry
	var reads bool       // whether it is in its loc
	for range maxTokens {
		all.token = maxToken
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			switch name := token.Name.Local; {
			case depth > maxDepth:
				return fmt.Errorf("XML is nested more than %d deep", maxDepth)
			case to == nil && name == "url":
				to, entry, loc = &s.Pages, depth, nil
			case to == nil && name == "sitemap":
				to, entry, loc = &s.Sitemaps, depth, nil
			case to != nil && depth == entry+1 && name == "loc":
				reads, loc = true, nil
			}
		case xml.CharData:
			if reads && depth == entry+1 {
				loc = append(loc, token...)
			}
		case xml.EndElement:
			if reads = reads && depth > entry+1; to != nil && depth == entry {
				if !s.take(to, s.url, string(loc)) {
					return nil
				}
				to = nil
			}
			depth--
		}
	}
	return fmt.Errorf("more than %d tags", maxTokens)
}

// maxDepth is how deep elements of a sitemap may be nested: those of the extensions for
// images and news have four. Each takes memory until it ends.
const maxDepth = 100

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

// bounded is a reader that fails where there is too much, instead of passing
// its beginning off as the whole. It counts what is unpacked: of a sitemap that is
// packed a thousandfold no more is read than of any other.
type bounded struct {
	in    io.Reader
	left  int64
	token int64 // how much one tag, or a text between two, may have still
}

func (b *bounded) Read(p []byte) (n int, err error) {
	if b.token < 0 {
		return 0, fmt.Errorf("a tag or a text of more than %d bytes", maxToken)
	}
	if b.left >= 0 {
		n, err = b.in.Read(p[:min(int64(len(p)), b.left+1)]) // one more tells too much from the end
		b.left -= int64(n)
		b.token -= int64(n)
	}
	if b.left < 0 {
		return max(0, n-1), fmt.Errorf("more than %d bytes", MaxSitemapSize)
	}
	return n, err
}
