package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/dashboards/page/internal/door"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// asked is an action as its page shows it: with what it is done to, and what was typed
// where that was wrong.
type asked struct {
	*action
	Name string // of the action, in the form
	What string // that it is done to, for people
	// Fixed is what the link has named, and the form hands on as it is.
	Fixed  url.Values
	Fields []field // to write in
	Back   string  // where the browser goes then: a view of this page
	Wrong  string  // what is wrong with what was given; empty at first
	// Meant is what was refused once since it costs jobs, and is done when it is asked
	// for once more.
	Meant string
}

// targets are what a link to an action names: what it is done to. They go with the form
// as they came.
var targets = append([]string{"id", "schedule"}, filterWords...)

// serveAction asks for a confirmation, or does what was confirmed. Of a POST only what
// is in its body counts, so an address cannot add to a form. ReadOnly is seen to here
// and not only where links are left out. Who did it, from the guard, goes into the
// changelog and the log.
func (p *Page) serveAction(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		p.fail(w, http.StatusMethodNotAllowed, "Actions are asked for with GET and done with POST.")
		return
	}
	if err := r.ParseForm(); err != nil {
		p.fail(w, http.StatusBadRequest, "The form cannot be read, or is too long.")
		return
	}
	form := r.Form
	if r.Method == http.MethodPost {
		form = r.PostForm
	}
	addTarget(form)
	a := actions[form.Get("action")]
	switch {
	case a == nil:
		p.fail(w, http.StatusNotFound, "There is no such action.")
		return
	case p.ReadOnly:
		p.fail(w, http.StatusForbidden, "This page can only be read.")
		return
	}
	// Where the browser came from, if that is a view of this page; else the first.
	// What is sent back is written anew from what was read, never the text itself.
	back := "./"
	if name, q, err := parsePlace(form.Get("back")); err == nil {
		back, _, _ = place(name, q)
		back = "./" + back
	}
	if r.Method == http.MethodGet {
		p.ask(w, r, a, form, back, nil)
		return
	}
	ctx := throttle.As(r.Context(), door.User(r.Context()))
	if err := a.do(ctx, p, form); err != nil {
		p.ask(w, r, a, form, back, err)
		return
	}
	p.Log.Info("changed on the page", "action", form.Get("action"), "by", door.User(ctx), "what", visible(whatOf(form), shortText))
	// Whoever looks sees it now, not in the next turn or when a view reads again.
	p.reader.again()
	redirect(w, back)
}

// addTarget adds what the page of an action has named. It is one escaped text, so
// that names of any bytes come back as they went: a browser sends line breaks, and
// bytes that are no UTF-8, in another form than they stood in a field.
func addTarget(form url.Values) {
	named, err := url.ParseQuery(form.Get("target"))
	if err != nil {
		return // a form of somebody else's; what it names is missing then
	}
	for _, target := range targets {
		if named.Has(target) && !form.Has(target) {
			form.Set(target, named.Get(target))
		}
	}
}

// explain says why an action was not done, with the status to say it under: 503 where
// the limiter says that Redis is not there, 404 where what it is about is gone, and else
// 422, for what was typed and for whatever asynq says.
func explain(err error) (code int, says string) {
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		return http.StatusServiceUnavailable, "Redis cannot be reached: " + err.Error()
	case errors.Is(err, throttle.ErrNoLimit), errors.Is(err, cron.ErrNoEntry),
		errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		return http.StatusNotFound, err.Error()
	}
	return http.StatusUnprocessableEntity, err.Error()
}

// ask shows the page of an action: with 200 where it asks, and with another code and
// what is wrong where it was tried. The script shows the same page as a dialog.
func (p *Page) ask(w http.ResponseWriter, r *http.Request, a *action, f url.Values, back string, wrong error) {
	code, says := http.StatusOK, ""
	if wrong != nil {
		code, says = explain(wrong)
	}
	d := asked{action: a, Name: f.Get("action"), What: short(whatOf(f)), Fixed: url.Values{}, Back: back, Wrong: visible(p.redactor.text(says), 500)}
	if costs, ok := errors.AsType[*costsJobs](wrong); ok {
		d.Meant = costs.meant
	}
	fields, err := p.fields(r.Context(), a, f)
	if err == nil && a.jobs != nil && wrong == nil {
		d.What, err = p.whichJobs(r.Context(), a.jobs, f)
	}
	if err != nil {
		d.Wrong = visible(err.Error(), 500)
	}
	d.Fields = fields
	for _, target := range targets {
		if f.Has(target) && !a.asks(target, f) {
			d.Fixed.Set(target, f.Get(target))
		}
	}
	p.write(w, code, "do", frame{Page: p, Title: a.Verb + " " + d.What, Data: d})
}

// fields are what the form asks for, filled with what holds now or was given. A limit
// that has no rate or no capacity is not asked for one. What holds now comes from the
// snapshot, so to ask costs Redis nothing while somebody looks.
func (p *Page) fields(ctx context.Context, a *action, f url.Values) ([]field, error) {
	var list []field
	add := func(name, label, now, hint string) {
		if f.Has(name) {
			now = f.Get(name)
		}
		list = append(list, field{name, label, visible(now, 300), hint})
	}
	var limit throttle.Limit
	s, _ := p.reader.latest(ctx)
	for _, row := range s.Limits {
		if row.Name == f.Get("limit") {
			limit = row.Limit.Limit
		}
	}
	if f.Get("limit") != "" && limit.Name == "" {
		return nil, fmt.Errorf("%w: %s", throttle.ErrNoLimit, f.Get("limit"))
	}
	for _, name := range a.fields {
		switch {
		// A limit that counts what is held at once has no rate, and one that counts a
		// window no capacity but its rate's number.
		case name == "rate" && limit.Kind != throttle.Concurrency:
			add(name, "Rate", limit.Rate.String(), "such as 10/s, 2000/day or 1/2s")
		case name == "capacity" && limit.Capacity > 0:
			add(name, "Capacity", strconv.Itoa(limit.Capacity), "the most permits at once")
		case name == "for":
			add(name, "For", "10m", "such as 90s, 30m or 24h")
		case name == "key" && a.asks(name, f):
			add(name, "Key", "", "empty for a limit without keys")
		}
	}
	return list, nil
}
