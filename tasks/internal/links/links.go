// Package links finds the next URLs of a crawl: the links of a page and the entries of a
// sitemap, in a canonical form. It does no I/O and limits what it takes from one text.
//
// Its input is untrusted, so mistakes in it do not end a crawl: [FromPage] accepts anything,
// and [ReadSitemap] returns what came before a mistake. The caller decides whether to
// fetch a URL, with [Within] and package robots. The functions are safe for concurrent use.
package links

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	whatwgerrors "github.com/nlnwa/whatwg-url/errors"
	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/headgate/headgate/internal/canonical"
)

// MaxURL is the maximum length of a canonical URL in bytes. Longer ones are mistakes or
// generated, such as a path that a link extends each time that it is followed.
const MaxURL = 2048

// Canonical returns the form of a URL by which a crawl recognizes it: absolute, as browsers
// parse it (WHATWG URL Standard), without the scheme's own port and the fragment, and with equal
// percent-encodings written alike (RFC 3986, 6.2.2). The order of the query's parts stays, because
// it matters to some servers. The reference is resolved against base; an empty base means that it
// is absolute. Two URLs with one form are the same page. Two forms may still be the same page, as
// http and https may be. The form of a form is itself.
//
// It is an error if the URL is not http or https, has a user or a password, or is longer than
// MaxURL. The error never shows a password.
func Canonical(base, reference string) (string, error) {
	if len(reference) > MaxURL {
		return "", fmt.Errorf("a URL of %d bytes: want at most %d", len(reference), MaxURL)
	}
	// net/url parses by RFC 3986. Browsers also accept backslashes, blanks and tabs.
	parse := whatwg.Parse
	if base != "" {
		parse = func(reference string) (*whatwg.Url, error) { return whatwg.ParseRef(base, reference) }
	}
	u, err := parse(reference)
	if err != nil {
		// The parser's error contains the URL, its type does not.
		return "", fmt.Errorf("%.100q is not a URL: %s", shown(reference), whatwgerrors.Type(err))
	}
	switch {
	case u.Scheme() != "http" && u.Scheme() != "https":
		return "", fmt.Errorf("URL of scheme %.20q: want http or https", u.Scheme())
	case u.Username() != "" || u.Password() != "":
		return "", errors.New("URL with user or password: want it without")
	}
	text := canonical.Percent(u.Href(true), unreserved, brace)
	if len(text) > MaxURL {
		return "", fmt.Errorf("a URL of %d bytes: want at most %d", len(text), MaxURL)
	}
	// The request is made by net/url, which must find the same host.
	again, err := url.Parse(text)
	if err != nil || again.Hostname() != strings.Trim(u.Hostname(), "[]") || base == "" && !sameHost(again, reference) {
		return "", fmt.Errorf("%.100q is a URL to browsers only", shown(reference))
	}
	return text, nil
}

// sameHost reports whether net/url finds the same host in a text, or none. The permit is for the
// host that it finds.
func sameHost(u *url.URL, text string) bool {
	named, err := url.Parse(text)
	if err != nil || named.Hostname() == "" {
		return true
	}
	return canonical.HostOf(text) == canonical.HostOf(u.String())
}

// shown returns a reference for errors: what is before an @ may be a password.
func shown(reference string) string {
	if i := strings.LastIndexByte(reference, '@'); i >= 0 {
		return "…" + reference[i:]
	}
	return reference
}

// unreserved reports whether a character means the same encoded and not (RFC 3986, 2.3), except
// the dot, which would have to be resolved in a path.
func unreserved(c byte) bool { return canonical.Alphanumeric(c) || strings.IndexByte("-_~", c) >= 0 }

// brace encodes braces, so that no URL contains a reference to a secret. The parser has encoded
// other characters.
func brace(c byte) bool { return c == '{' || c == '}' }

// Within reports whether the URL's host is allowed: "example.com" allows that host alone,
// "*.example.com" all below it. Spelling and port do not matter.
func Within(text string, allowed []string) bool {
	host := canonical.HostOf(text)
	return host != "" && slices.ContainsFunc(allowed, func(pattern string) bool {
		pattern, wild := strings.CutPrefix(pattern, "*.")
		pattern, err := canonical.Host(pattern)
		return err == nil && (!wild && host == pattern || wild && strings.HasSuffix(host, "."+pattern))
	})
}
