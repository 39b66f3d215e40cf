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

// The limits of sitemaps.org: entries of one sitemap, and its unpacked bytes. A larger site
// lists several sitemaps in an index.
const (
	MaxSitemapEntries = 50_000
	MaxSitemapSize    = 50 << 20
)

// maxToken limits a tag of a sitemap, and a text between two tags, in bytes. A tag of many
// attributes takes many times as much memory.
const maxToken = 1 << 20

// Sitemap is what a sitemap lists: canonical URLs in its order, duplicates included.
type Sitemap struct {
	Pages []string
	// Sitemaps are other sitemaps, of a sitemap index. The caller decides how far to follow
	// them.
	Sitemaps []string
	// More reports that entries beyond MaxSitemapEntries are left out.
	More bool
}

// ReadSitemap reads the sitemap that was fetched from the URL: XML, an RSS or Atom feed, or
// plain text with one URL a line, gzipped or not. Entries without a URL that can be crawled are
// left out. The error says why the reading ended early, or that there is no URL at all. The
// entries before it are returned as well. Reading ends at damaged gzip, at XML that breaks off, at a
// tag of more than 1 MiB, after MaxSitemapSize bytes, at a line of plain text over 64 KB, and at
// an error of the reader.
//
// Entries on other hosts are returned, although sitemaps.org forbids them.
func ReadSitemap(url string, text io.Reader) (Sitemap, error) {
	s := sitemapReader{url: url}
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

type sitemapReader struct {
	Sitemap
	url     string
	entries int // read so far
}

func (s *sitemapReader) read(text io.Reader) error {
	// The first bytes tell whether it is packed. Names and Content-Types are often wrong.
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

// add appends the URL of an entry. An entry whose URL cannot be crawled counts as well.
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

// readXML reads the entries of a sitemap, an index or a feed. It uses the tokenizer of HTML,
// because many sitemaps are no correct XML: they have a bare &, an entity of HTML, or a
// byte that is not UTF-8. Such an error costs one entry.
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
	end := func() { // of an entry's URL, or of an entry without one
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
				return fmt.Errorf("it breaks off within <%s>", root)
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
			case to == nil || prefix != entryPrefix: // such as the <image:loc> of a picture
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

// atomLink returns the href of an Atom link if that is the entry's page.
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

// unescape resolves CDATA and the references of XML. References of HTML stay: in "?a=1&copy=2"
// the & should have been written &amp;.
func unescape(text []byte) string {
	if inner, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("<![CDATA[")); ok {
		return string(bytes.TrimSuffix(inner, []byte("]]>")))
	}
	return xmlReference.ReplaceAllStringFunc(string(text), html.UnescapeString)
}

var xmlReference = regexp.MustCompile(`&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});`)
