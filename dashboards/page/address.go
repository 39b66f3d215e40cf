package page

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxQuery is the maximum length of an address in bytes.
const maxQuery = 4 << 10

// address is the name of a view with its query.
type address struct {
	view string
	url.Values
}

// String returns the address relative to the page.
func (at address) String() string {
	if len(at.Values) == 0 {
		return "./" + at.view
	}
	return "./" + at.view + "?" + at.Encode()
}

// backTo returns the address to which the browser returns after an action. If the text names no
// view of this page, backTo returns "./", so a link cannot lead to another site.
func backTo(text string) string {
	name, query, _ := strings.Cut(strings.TrimPrefix(text, "./"), "?")
	q, err := url.ParseQuery(query)
	if views[name].load == nil || err != nil {
		return "./"
	}
	return address{name, q}.String()
}

// to returns the address of a view. pairs are parameters and their values. A later pair replaces an
// earlier one, and an empty value removes the parameter.
func to(name string, pairs ...string) string {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if q.Set(pair[0], pair[1]); pair[1] == "" {
			q.Del(pair[0])
		}
	}
	return address{name, q}.String()
}

// act returns the address of an action. pairs are parameters and values that name its limit and
// key. Empty values are kept, because the empty key is valid.
func act(name, back string, pairs ...string) string {
	q := url.Values{"action": {name}, "back": {back}}
	for pair := range slices.Chunk(pairs, 2) {
		q.Set(pair[0], pair[1])
	}
	return address{"do", q}.String()
}

// pages describes a page of a list. From and To are the numbers of its first and last item, from 1.
// Before and After are the addresses of the previous and the next page; empty if there is none.
type pages struct {
	From, To, Total int
	Before, After   string
}

// pageNumber reads the number of the page from an address, from 0. A missing or invalid number
// means the first page.
func pageNumber(at address) int {
	n, err := strconv.Atoi(at.Get("page"))
	if err != nil || n > 1_000_000 {
		return 0
	}
	return max(0, n-1)
}

// newPages describes a page of a list. total is the number of items in the list, and size the
// number of items on a page.
func newPages(at address, page, size, total int) pages {
	p := pages{From: min(page*size+1, total), To: min((page+1)*size, total), Total: total}
	number := func(n int) string {
		q := url.Values{}
		for name := range at.Values {
			q.Set(name, at.Get(name))
		}
		q.Set("page", strconv.Itoa(n+1))
		return address{at.view, q}.String()
	}
	if page > 0 {
		p.Before = number(page - 1)
	}
	if p.To < total {
		p.After = number(page + 1)
	}
	return p
}

// on returns the items of a list that are on a page.
func on[T any](p pages, list []T) []T { return list[max(0, p.From-1):p.To] }
