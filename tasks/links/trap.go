package links

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSegments is how many parts a path may have, and repeats how often in a row the same
// parts may come in it.
const (
	maxSegments = 30
	repeats     = 3
)

// dated finds a year and a month in a path or a query.
var dated = regexp.MustCompile(`(?:^|[^0-9])([12][0-9]{3})[-/](?:0?[1-9]|1[0-2])(?:[^0-9]|$)`)

// Trap reports whether a URL looks like one of those that sites make without end: whose path
// repeats itself, as /a/b/a/b/a/b does where a relative link leads further down, or has more
// than 30 parts, and pages of a calendar that lie more than two years ahead, or before 1970.
func Trap(text string, now time.Time) bool {
	u, err := url.Parse(text)
	if err != nil {
		return true
	}
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	if len(parts) > maxSegments {
		return true
	}
	for length := 1; length*repeats <= len(parts); length++ {
		for at := 0; at+length*repeats <= len(parts); at++ {
			if repeated(parts[at:], length) {
				return true
			}
		}
	}
	for _, found := range dated.FindAllStringSubmatch(u.EscapedPath()+"?"+u.RawQuery, -1) {
		if year, _ := strconv.Atoi(found[1]); year < 1970 || year > now.Year()+2 {
			return true
		}
	}
	return false
}

// repeated reports whether a list begins with the same parts, so many of them, time and
// again. Numbers and single letters do so in honest paths, too.
func repeated(parts []string, length int) bool {
	first := parts[:length]
	if !slices.ContainsFunc(first, func(part string) bool {
		_, err := strconv.Atoi(part)
		return len(part) > 1 && err != nil
	}) {
		return false
	}
	for n := 1; n < repeats; n++ {
		if !slices.Equal(first, parts[n*length:(n+1)*length]) {
			return false
		}
	}
	return true
}
