// Package links finds where a crawl goes on: the links of a page, the URLs of
// a sitemap, and the one form of a URL by which it is known whether it has been
// there. It does no I/O and bounds what it takes from one text.
//
// What it reads is written by strangers, so nothing in it is an error that ends a
// crawl: [FromPage] takes anything, and [ReadSitemap] keeps what came before a
// mistake. Whether a crawl should go to a URL at all is for its caller to say, with
// [Within] and package robots. The functions are safe for concurrent use.
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

// MaxURL is how long a URL may be, in bytes of its canonical form. Longer ones are
// traps or mistakes: of a calendar without an end, or a path that a link makes
// longer each time that it is followed.
const MaxURL = 2048

// Canonical is the one form of a URL, by which a crawl knows that it has been
// there: absolute, as browsers understand it (WHATWG), so that the host is in
// lower case and in ASCII, the scheme's own port and the fragment are gone and
// the path has no dots to resolve; besides, percent-encoding has capital digits
// and is not used where it need not be. The order of a query's parts stays, for
// to some servers it matters. The reference is resolved against base; an empty
// base means that it is absolute.
//
// The form is that of the URL Standard of the WHATWG, with what RFC 3986 6.2.2 says
// of equal percent-encodings. So two texts with one form are the same page; two
// forms may be the same page still, as http and https or with and without a slash
// at the end, which only the server knows. The form of a form is itself.
//
// It is an error if the URL is not http or https, has a user or a password, or
// is longer than MaxURL. The error shows no more than the beginning of the URL, and
// nothing of one that may have a password.
func Canonical(base, reference string) (string, error) {
	if len(reference) > MaxURL {
		return "", fmt.Errorf("a URL of %d bytes: want at most %d", len(reference), MaxURL)
	}
	// net/url reads by RFC 3986, which pages do not keep to: browsers take backslashes, blanks
	// and tabs, and a crawl has to go where they go.
	parse := whatwg.Parse
	if base != "" {
		parse = func(reference string) (*whatwg.Url, error) { return whatwg.ParseRef(base, reference) }
	}
	u, err := parse(reference)
	if err != nil {
		// The parser's error repeats the URL, its kind does not.
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
	// What is fetched is read by net/url, which must see the same host.
	again, err := url.Parse(text)
	if err != nil || again.Hostname() != strings.Trim(u.Hostname(), "[]") || base == "" && !sameHost(again, reference) {
		return "", fmt.Errorf("%.100q is a URL to browsers only", shown(reference))
	}
	return text, nil
}

// sameHost reports whether net/url, too, reads the host out of a text, if it reads any:
// that is the one which the permit was asked for.
func sameHost(u *url.URL, text string) bool {
	named, err := url.Parse(text)
	if err != nil || named.Hostname() == "" {
		return true
	}
	a, errA := canonical.Host(u.Hostname())
	b, errB := canonical.Host(named.Hostname())
	return errA == nil && errB == nil && a == b
}

// shown is a reference as errors may show it: what is before an @ may be a password.
func shown(reference string) string {
	if i := strings.LastIndexByte(reference, '@'); i >= 0 {
		return "…" + reference[i:]
	}
	return reference
}

// unreserved reports whether a character means the same encoded and not, by RFC 3986
// 2.3, but for the dot: decoded, it could become a part of the path that has to be
// resolved.
func unreserved(c byte) bool { return canonical.Alphanumeric(c) || strings.IndexByte("-_~", c) >= 0 }

// brace has nothing that is found look like the reference to a secret. All other characters
// have been encoded where they must be by the parser before.
func brace(c byte) bool { return c == '{' || c == '}' }

// Within reports whether the URL's host is one of those allowed: "example.com"
// is that host alone, "*.example.com" all below it and not that host itself. How it is
// written does not matter, nor does the port. Without any pattern no host is allowed.
func Within(text string, allowed []string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	host, err := canonical.Host(u.Hostname())
	return err == nil && slices.ContainsFunc(allowed, func(pattern string) bool {
		pattern, wild := strings.CutPrefix(pattern, "*.")
		pattern, err := canonical.Host(pattern)
		return err == nil && (!wild && host == pattern || wild && strings.HasSuffix(host, "."+pattern))
	})
}
