package page

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// parameters are what a view's query may have: the limit that is open, what its keys
// are searched by, the page of a list, a lane by its name, a job by queue and ID, and which
// jobs are meant, from where in their list on; and how far back the history goes.
var parameters = append([]string{"open", "q", "page", "lane", "id", "from"}, filterWords...)

// maxQuery bounds what a query may say, in bytes: it is a key of the cache. A lane's
// name is the longest that a link has.
const maxQuery = 4 << 10

var errQuery = errors.New("the address is too long")

// place is a view with its query.
type place struct {
	view string
	url.Values
	// text is the same whatever else was asked. By it viewers of the same share what is made, so
	// parameters that no view knows are left out, and the others come in the order of their names.
	text string
}

// newPlace fails only for what is too long.
func newPlace(view string, q url.Values) (place, error) {
	at := place{view, url.Values{}, view}
	for _, parameter := range parameters {
		if value := q.Get(parameter); value != "" {
			at.Set(parameter, value)
		}
	}
	if len(at.Values) > 0 {
		at.text += "?" + at.Encode()
	}
	if len(at.text) > maxQuery {
		return place{}, errQuery
	}
	return at, nil
}

// to is the address of a page: pairs of a parameter and its value. Empty values are
// left out, as they mean the same as none. It begins with ./, so what is in a name
// cannot make it the address of another site.
func to(name string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	if len(q) == 0 {
		return "./" + name
	}
	return "./" + name + "?" + q.Encode()
}

// act is the address of an action on what the pairs name, from a place to which it
// comes back. Empty values stay: the empty key is that of a limit without keys, while
// no key at all has the form ask for one.
func act(name, back string, pairs ...string) string {
	q := url.Values{"action": {name}, "back": {back}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "./do?" + q.Encode()
}

type pages struct {
	// Page counts from 1, and may lie beyond the end; Size is how many a page has, and
	// Total how many there are in all.
	Page, Size, Total int
	at                place // with or without its page
}

// newPages reads the page from a place. What is no page is the first, and so is one
// beyond a million, of which the offset could overflow. The total is set when it is
// known.
func newPages(at place, size int) pages {
	n, err := strconv.Atoi(at.Get("page"))
	if err != nil || n < 1 || n > 1_000_000 {
		n = 1
	}
	return pages{Page: n, Size: size, at: at}
}

func (p pages) offset() int { return (p.Page - 1) * p.Size }

// From is the number of the first that is shown, counted from 1; 0 of none.
func (p pages) From() int { return min(p.offset()+1, p.Total) }

func (p pages) To() int { return min(p.offset()+p.Size, p.Total) }

// Before is the address of the page before, or empty.
func (p pages) Before() string {
	if p.Page < 2 {
		return ""
	}
	return p.to(p.Page - 1)
}

func (p pages) After() string {
	if p.To() >= p.Total {
		return ""
	}
	return p.to(p.Page + 1)
}

// to is the address of another page. The query may be shared, so it is copied.
func (p pages) to(n int) string {
	q := maps.Clone(p.at.Values)
	q.Set("page", strconv.Itoa(n))
	at, _ := newPlace(p.at.view, q)
	return "./" + at.text
}

// window is the part of a list that a page shows: nothing beyond its end.
func window[T any](list []T, p pages) []T {
	from := min(p.offset(), len(list))
	return list[from:min(from+p.Size, len(list))]
}

// filterWords are what a filter is made of, in a query and in a form, as the flags of
// "worker jobs" have it.
var filterWords = []string{"state", "queue", "type", "limit", "key", "payload", "error", "older"}

func filterOf(ctx context.Context, limiter *waitdb.DB, q url.Values) (inspect.Filter, error) {
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
	return f, f.Validate(ctx, limiter)
}

func filterText(q url.Values) string {
	var words []string
	for pair := range slices.Chunk(pairs(q), 2) {
		words = append(words, strings.Join(pair, " "))
	}
	return strings.Join(words, ", ")
}

func pairs(q url.Values) (list []string) {
	for _, word := range filterWords {
		if value := q.Get(word); value != "" {
			list = append(list, word, value)
		}
	}
	return list
}

// tab is a list of the jobs in some states.
type tab struct {
	Name, States string
	To           string // its address
	Count        int
	On           bool
}

// tabs are the states that a list can be of, in the order of a job's life. Those that are
// called are on their way: they are among those that wait.
var tabs = []tab{
	{Name: "All"},
	{Name: "Waiting", States: inspect.Waiting + "," + inspect.Granted},
	{Name: "Pending", States: "pending"},
	{Name: "Scheduled", States: "scheduled"},
	{Name: "Running", States: "active"},
	{Name: "Retrying", States: "retry"},
	{Name: "Completed", States: "completed"},
	{Name: "Archived", States: "archived"},
}

// of is how many jobs of a queue it has.
func (t tab) of(q inspect.QueueInfo) int {
	if t.States == "" {
		return q.Size // completed jobs too, whatever asynq's comment says
	}
	return q.Count(strings.Split(t.States, ",")...)
}

// field is one that the form asks for. Value is what holds now, or what was typed and
// was wrong; Hint says what would be right.
type field struct{ Name, Label, Value, Hint string }
