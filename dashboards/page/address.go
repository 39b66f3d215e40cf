package page

import (
	"context"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// filterNames are the parameters of a filter, like the flags of the command "worker jobs".
var filterNames = []string{"state", "queue", "type", "limit", "key", "payload", "error", "older"}

// maxQuery is the maximum length of an address in bytes.
const maxQuery = 4 << 10

// address is the name of a view with its query.
type address struct {
	view string
	url.Values
}

func (at address) String() string {
	if len(at.Values) == 0 {
		return at.view
	}
	return at.view + "?" + at.Encode()
}

// backTo returns the address to which the browser returns after an action. If the text names no
// view of this page, backTo returns "./", so a link cannot lead to another site.
func backTo(text string) string {
	name, query, _ := strings.Cut(text, "?")
	q, err := url.ParseQuery(query)
	if views[name].load == nil || err != nil {
		return "./"
	}
	return "./" + address{name, q}.String()
}

// to returns a relative address, with pairs of a parameter and its value. It leaves out empty values.
func to(name string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return "./" + name
	}
	return "./" + name + "?" + q.Encode()
}

// act returns the address of an action on the object that pairs of a parameter and its value identify.
// Empty values are kept, because the empty key is valid.
func act(name, back string, pairs ...string) string {
	q := url.Values{"action": {name}, "back": {back}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "./do?" + q.Encode()
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
	if err != nil || n < 1 || n > 1_000_000 {
		return 0
	}
	return n - 1
}

// newPages describes a page of a list. total is the number of items in the list, and size the
// number of items on a page.
func newPages(at address, page, size, total int) pages {
	p := pages{From: min(page*size+1, total), To: min((page+1)*size, total), Total: total}
	to := func(n int) string {
		q := maps.Clone(at.Values)
		q.Set("page", strconv.Itoa(n+1))
		return "./" + address{at.view, q}.String()
	}
	if page > 0 {
		p.Before = to(page - 1)
	}
	if p.To < total {
		p.After = to(page + 1)
	}
	return p
}

// pageOf returns the part of a list on a page.
func pageOf[T any](list []T, page, size int) []T {
	from := min(page*size, len(list))
	return list[from:min(from+size, len(list))]
}

func newFilter(ctx context.Context, queues *inspect.Queues, q url.Values) (inspect.Filter, error) {
	f := inspect.Filter{
		Queue: q.Get("queue"), Type: q.Get("type"), Limit: q.Get("limit"), Key: q.Get("key"),
		Payload: q.Get("payload"), Error: q.Get("error"),
	}
	if states := q.Get("state"); states != "" {
		f.States = strings.Split(states, ",")
	}
	if older := q.Get("older"); older != "" {
		var err error
		if f.OlderThan, err = duration.Parse(older); err != nil {
			return f, &throttle.FieldError{Field: "older", Value: older, Want: "want a duration such as 90s, 24h or 7d"}
		}
	}
	return f, f.Validate(ctx, queues)
}

// filterPairs returns the names and values of a filter's parameters.
func filterPairs(q url.Values) (list []string) {
	for _, name := range filterNames {
		if value := q.Get(name); value != "" {
			list = append(list, name, value)
		}
	}
	return list
}
