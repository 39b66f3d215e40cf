package page

import (
	"context"
	"errors"
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

// parameters are all parameters of views.
var parameters = append([]string{"open", "q", "page", "id", "from"}, filterNames...)

// maxQuery bounds an address, in bytes.
const maxQuery = 4 << 10

// address is a view with its query.
type address struct {
	view string
	url.Values
	text string // the whole address, without unknown parameters
}

// newAddress fails only if the address is too long.
func newAddress(view string, q url.Values) (address, error) {
	at := address{view, url.Values{}, view}
	for _, parameter := range parameters {
		if value := q.Get(parameter); value != "" {
			at.Set(parameter, value)
		}
	}
	if len(at.Values) > 0 {
		at.text += "?" + at.Encode()
	}
	if len(at.text) > maxQuery {
		return address{}, errors.New("the address is too long")
	}
	return at, nil
}

// parseAddress parses the address that an action comes back to. It accepts only views of this page,
// so a link cannot lead to another site.
func parseAddress(text string) (address, error) {
	name, query, _ := strings.Cut(text, "?")
	name = strings.TrimPrefix(name, "./")
	if views[name] == nil {
		return address{}, errors.New("there is no such page")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return address{}, errors.New("the address cannot be read")
	}
	return newAddress(name, q)
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

// pages is a page of a list. Page counts from 1 and may be beyond the end.
type pages struct {
	Page, Size, Total int
	at                address
}

// newPages reads the page from an address. An invalid page means the first. The caller sets Total.
func newPages(at address, size int) pages {
	n, err := strconv.Atoi(at.Get("page"))
	if err != nil || n < 1 || n > 1_000_000 {
		n = 1
	}
	return pages{Page: n, Size: size, at: at}
}

func (p pages) offset() int { return (p.Page - 1) * p.Size }

// From is the number of the first item on the page, from 1; 0 if the list is empty.
func (p pages) From() int { return min(p.offset()+1, p.Total) }

// To is the number of the last item on the page.
func (p pages) To() int { return min(p.offset()+p.Size, p.Total) }

// Before is the address of the previous page, or empty.
func (p pages) Before() string {
	if p.Page < 2 {
		return ""
	}
	return p.to(p.Page - 1)
}

// After is the address of the next page, or empty.
func (p pages) After() string {
	if p.To() >= p.Total {
		return ""
	}
	return p.to(p.Page + 1)
}

func (p pages) to(n int) string {
	q := maps.Clone(p.at.Values)
	q.Set("page", strconv.Itoa(n))
	at, _ := newAddress(p.at.view, q)
	return "./" + at.text
}

// pageOf returns the part of a list on a page.
func pageOf[T any](list []T, p pages) []T {
	from := min(p.offset(), len(list))
	return list[from:min(from+p.Size, len(list))]
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

// field is a field of a form.
type field struct{ Name, Label, Value, Hint string }
