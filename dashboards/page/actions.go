package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// action changes a limit or a key of it. A GET shows a form that asks for a confirmation; a POST of
// the form executes the action and redirects the browser back. So neither a link nor a reload can
// execute an action.
type action struct {
	Verb   string
	Text   string   // the effect, in a sentence
	Grave  bool     // the effect cannot be undone
	inputs []string // fields that the user fills in
	// do executes the action. ctx names the user. Errors of do are shown to the user.
	do func(ctx context.Context, q *inspect.Queues, f url.Values) error
}

// actions are all actions by their name in the form.
var actions = map[string]*action{
	"pause":   {Verb: "Pause", Text: "It hands out no permits until it is resumed. Waiting jobs stay, and running jobs continue.", do: onLimit((*throttle.Limiter).Pause)},
	"resume":  {Verb: "Resume", Text: "It starts to hand out permits again, at its normal rate.", do: onLimit((*throttle.Limiter).Resume)},
	"change":  {Verb: "Change", Text: "It applies at once, also to waiting jobs. Permits taken so far still count. It stays until the limit changes in the config file.", inputs: []string{"rate", "capacity"}, do: changeLimit},
	"reset":   {Verb: "Reset", Grave: true, Text: "All permits become available again, and a block ends. More calls than the limit allows may be sent.", inputs: []string{"key"}, do: onKey((*throttle.Limiter).Reset)},
	"block":   {Verb: "Block", Text: "The key gets no permits for that time. Other keys are not affected.", inputs: []string{"key", "for"}, do: block},
	"unblock": {Verb: "Unblock", Text: "The key gets permits again at once.", inputs: []string{"key"}, do: blockUntil(time.Time{})},
}

// hasInput reports whether the user fills in this field of the form. If the address has the key, the
// form does not ask for it.
func (a *action) hasInput(name string, r *http.Request) bool {
	return slices.Contains(a.inputs, name) && (name != "key" || !r.URL.Query().Has("key"))
}

// onLimit returns a function that calls do with each limiter that counts the form's limit.
func onLimit(do func(l *throttle.Limiter, ctx context.Context, limit string) error) func(context.Context, *inspect.Queues, url.Values) error {
	return func(ctx context.Context, q *inspect.Queues, f url.Values) error {
		limit := f.Get("limit")
		return q.EachPlace(limit, nil, func(l *waitdb.DB, _ shard.Shard) error { return do(l.Limiter, ctx, limit) })
	}
}

// onKey returns a function that calls do with each limiter that counts the form's key.
func onKey(do func(l *throttle.Limiter, ctx context.Context, limit, key string) error) func(context.Context, *inspect.Queues, url.Values) error {
	return func(ctx context.Context, q *inspect.Queues, f url.Values) error {
		limit, key := f.Get("limit"), f.Get("key")
		return q.EachPlace(limit, &key, func(l *waitdb.DB, _ shard.Shard) error { return do(l.Limiter, ctx, limit, key) })
	}
}

func blockUntil(until time.Time) func(context.Context, *inspect.Queues, url.Values) error {
	return onKey(func(l *throttle.Limiter, ctx context.Context, limit, key string) error {
		return l.Block(ctx, limit, key, until)
	})
}

func block(ctx context.Context, q *inspect.Queues, f url.Values) error {
	d, err := duration.Parse(strings.TrimSpace(f.Get("for")))
	if err != nil || d <= 0 {
		return &throttle.FieldError{Field: "for", Value: strconv.Quote(f.Get("for")), Want: "want a duration such as 90s, 24h or 7d"}
	}
	now, err := q.Limiter.Now(ctx)
	if err != nil {
		return err
	}
	return blockUntil(now.Add(d))(ctx, q, f)
}

// changeLimit sets the rate and the capacity. It fails if the change would archive waiting jobs.
func changeLimit(ctx context.Context, q *inspect.Queues, f url.Values) error {
	old, err := q.Definition(ctx, f.Get("limit"))
	if err != nil {
		return err
	}
	l := old.Limit
	if f.Has("rate") {
		if l.Rate, err = throttle.ParseRate(strings.TrimSpace(f.Get("rate"))); err != nil {
			return err
		}
	}
	if text := f.Get("capacity"); f.Has("capacity") {
		if l.Capacity, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return &throttle.FieldError{Field: "capacity", Value: strconv.Quote(text), Want: "want a whole number"}
		}
	}
	impact, err := q.LimitChangeImpact(ctx, old.Limit, l)
	if err == nil && impact != "" {
		err = fmt.Errorf("%s: use \"headgate-worker limits set %s --yes\" to make this change", impact, l.Name)
	}
	if err != nil {
		return err
	}
	return q.SetLimit(ctx, l)
}

// serveAction shows the form of an action, or executes a confirmed action. The address names the
// limit and the key, because browsers change some bytes in form fields. A POST names the action in
// its form, so a request without the form executes nothing.
func (p *Page) serveAction(w http.ResponseWriter, r *http.Request) {
	isPost := r.Method == http.MethodPost
	if !isPost && r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		p.fail(w, http.StatusMethodNotAllowed, "Use GET to open an action and POST to execute it.")
		return
	}
	if err := r.ParseForm(); err != nil {
		p.fail(w, http.StatusBadRequest, "The form cannot be read, or is too long.")
		return
	}
	form, name := r.Form, r.Form.Get("action")
	if isPost {
		name = r.PostForm.Get("action")
	}
	a := actions[name]
	switch {
	case a == nil:
		p.fail(w, http.StatusNotFound, "There is no such action.")
	case p.ReadOnly:
		p.fail(w, http.StatusForbidden, "This page is read-only.")
	case !isPost:
		p.confirm(w, r, a, form, nil)
	default:
		ctx := throttle.WithActor(r.Context(), userOf(r.Context()))
		if err := p.execute(ctx, r, a, form); err != nil {
			p.confirm(w, r, a, form, err)
			return
		}
		p.Log.Info("changed on the page", "action", name, "by", userOf(ctx), "what", objectOf(a, form))
		p.reader.expire()
		redirect(w, backTo(form.Get("back")))
	}
}

func (p *Page) execute(ctx context.Context, r *http.Request, a *action, form url.Values) error {
	if p.NormalizeKey != nil && a.hasInput("key", r) && form.Get("key") != "" {
		key, err := p.NormalizeKey(form.Get("limit"), form.Get("key"))
		if err != nil {
			return err
		}
		form.Set("key", key)
	}
	return a.do(ctx, p.queues, form)
}

type confirmation struct {
	*action
	Name   string // of the action
	Object string // the limit or the key
	To     string // address to which the form is sent
	Fields []field
	Back   string
	Wrong  string // error of the last attempt, or ""
}

type field struct{ Name, Label, Value, Hint string }

// confirm shows the form of an action. After a failed attempt it shows the error. With JavaScript
// the form is a dialog.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request, a *action, f url.Values, failed error) {
	d := confirmation{action: a, Name: f.Get("action"), Object: objectOf(a, f), Back: backTo(f.Get("back"))}
	fields, err := p.fields(r, a, f)
	d.Fields = fields
	code := http.StatusOK
	if failed != nil {
		code, err = http.StatusUnprocessableEntity, failed
	}
	if errors.Is(err, throttle.ErrUnavailable) {
		code = http.StatusServiceUnavailable
	} else if errors.Is(err, throttle.ErrNoLimit) {
		code = http.StatusNotFound
	}
	if err != nil {
		d.Wrong = p.redactor.Clean(err.Error(), 500)
	}
	named := maps.Clone(f)
	maps.DeleteFunc(named, func(name string, _ []string) bool { return a.hasInput(name, r) })
	d.To = address{"do", named}.String()
	p.write(w, code, "do", frame{Title: a.Verb + " " + d.Object, Data: d})
}

// fields returns the fields of the form. A value comes from f, or from the limit if f does not have
// the field. A concurrency limit has no rate, and a window has no capacity.
func (p *Page) fields(r *http.Request, a *action, f url.Values) (list []field, err error) {
	limit, err := p.queues.Definition(r.Context(), f.Get("limit"))
	add := func(applies bool, name, label, value, hint string) {
		if f.Has(name) {
			value = f.Get(name)
		}
		if applies && a.hasInput(name, r) {
			list = append(list, field{name, label, display.Visible(value, 300), hint})
		}
	}
	add(limit.Kind != throttle.Concurrency, "rate", "Rate", limit.Rate.String(), "such as 10/s, 2000/day or 1/2s")
	add(limit.Capacity > 0, "capacity", "Capacity", strconv.Itoa(limit.Capacity), "the most permits at once")
	add(true, "key", "Key", "", "empty for a limit without keys")
	add(true, "for", "For", "10m", "such as 90s, 24h or 7d")
	return list, err
}

// objectOf describes the limit or the key of an action.
func objectOf(a *action, f url.Values) string {
	if slices.Contains(a.inputs, "key") && f.Get("key") != "" {
		return short(f.Get("limit") + " of " + f.Get("key"))
	}
	return short(f.Get("limit"))
}
