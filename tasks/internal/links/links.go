// Package links finds the next URLs of a crawl: the links of a page and the entries of a sitemap,
// in canonical form. Its input is untrusted, so the package limits the number of URLs that it takes
// from one text.
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

// MaxURL is the maximum length of a canonical URL in bytes. Longer URLs are usually mistakes.
const MaxURL = 2048

// maxSlashes is the maximum number of slashes in a URL. The time to parse a URL grows with the square
// of this number.
const maxSlashes = 200

// Canonical returns the canonical form of a URL, by which a crawl recognizes the URL. The form is
// absolute, as browsers parse it (WHATWG URL Standard), without the scheme's default port and the
// fragment, and with a normalized percent-encoding (RFC 3986, 6.2.2). Canonical resolves the
// reference against base. If base is empty, the reference must be absolute. Canonical is
// idempotent.
//
// Canonical returns an error if the URL is not http or https, has a user, a password or port 0, is
// longer than MaxURL, or has more than 200 slashes. It also returns an error if browsers and net/url find different hosts in the
// URL. The error never shows a password.
func Canonical(base, reference string) (string, error) {
	if base == "" {
		return resolve(nil, reference)
	}
	parsed, err := whatwg.Parse(base)
	if err != nil {
		return "", fmt.Errorf("base %.100q is not a URL: %s", shown(base), whatwgerrors.Type(err))
	}
	return resolve(parsed, reference)
}

// resolve is Canonical with a base that is parsed already. A nil base means none.
func resolve(base *whatwg.Url, reference string) (string, error) {
	if len(reference) > MaxURL {
		return "", fmt.Errorf("a URL of %d bytes: want at most %d", len(reference), MaxURL)
	}
	if n := strings.Count(reference, "/") + strings.Count(reference, `\`); n > maxSlashes {
		return "", fmt.Errorf("a URL with %d slashes: want at most %d", n, maxSlashes)
	}
	// net/url parses by RFC 3986. Browsers also accept backslashes, blanks and tabs.
	parse := whatwg.Parse
	if base != nil {
		parse = base.Parse
	}
	u, err := parse(reference)
	if err != nil {
		// The parser's error contains the URL. The error's type does not.
		return "", fmt.Errorf("%.100q is not a URL: %s", shown(reference), whatwgerrors.Type(err))
	}
	switch {
	case u.Scheme() != "http" && u.Scheme() != "https":
		return "", fmt.Errorf("URL of scheme %.20q: want http or https", u.Scheme())
	case u.Username() != "" || u.Password() != "":
		return "", errors.New("URL with user or password: want it without")
	case u.Port() == "0":
		return "", errors.New("URL with port 0: want a port from 1 to 65535")
	}
	text := canonical.PercentEncoding(u.Href(true), unreserved, brace)
	if len(text) > MaxURL {
		return "", fmt.Errorf("a URL of %d bytes: want at most %d", len(text), MaxURL)
	}
	// The client that requests the URL parses it with net/url, which must find the same host.
	reparsed, err := url.Parse(text)
	same := err == nil && reparsed.Hostname() == strings.Trim(u.Hostname(), "[]")
	// If base is empty, reference can be a job's URL. The host that net/url finds in it is then the
	// key of the job's limits.
	if byNetURL, err := url.Parse(reference); base == nil && err == nil && byNetURL.Hostname() != "" {
		same = same && canonical.HostOf(reference) == canonical.HostOf(text)
	}
	if !same {
		return "", fmt.Errorf("%.100q is read as different hosts by browsers and by net/url", shown(reference))
	}
	return text, nil
}

// shown returns a reference for errors, without the text before the last @: it can be a password.
func shown(reference string) string {
	if i := strings.LastIndexByte(reference, '@'); i >= 0 {
		return "…" + reference[i:]
	}
	return reference
}

// unreserved reports whether a character has the same meaning with and without encoding (RFC 3986,
// 2.3). It returns false for a dot, because a decoded dot could be part of a path's "..".
func unreserved(c byte) bool { return canonical.IsAlphanumeric(c) || strings.IndexByte("-_~", c) >= 0 }

// brace reports whether a character is a brace. Braces are encoded, so that no URL contains a
// reference to a secret. The parser has encoded all other characters that a URL cannot contain.
func brace(c byte) bool { return c == '{' || c == '}' }

// Within reports whether the host of a URL is in a list of allowed hosts, in any spelling. The entry
// "example.com" allows this host alone, and "*.example.com" allows its subdomains.
func Within(text string, allowed []string) bool {
	host := canonical.HostOf(text)
	return host != "" && slices.ContainsFunc(allowed, func(pattern string) bool {
		pattern, wild := strings.CutPrefix(pattern, "*.")
		pattern, err := canonical.Host(pattern)
		return err == nil && (!wild && host == pattern || wild && strings.HasSuffix(host, "."+pattern))
	})
}
