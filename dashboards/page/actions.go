package page

import (
	"cmp"
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

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/dashboards/page/internal/auth"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// asked is an action as its page shows it: with what it is done to, and what was typed
// where that was wrong.
type asked struct {
	*action
	Name   string  // of the action, in the form
	What   string  // that it is done to, for people
	To     string  // where the form goes: to what the link has named
	Fields []field // to write in
	Back   string  // where the browser goes then: a view of this page
	Wrong  string  // what is wrong with what was given; empty at first
	// Meant is what was refused once since it costs jobs, and is done when it is asked
	// for once more.
	Meant string
}

// serveAction asks for a confirmation, or does what was confirmed. What it is done to stands in
// the address of both, so names of any bytes come back as they went: a browser sends line
// breaks, and bytes that are no UTF-8, in another form than they stood in a field. What is done
// must stand in the form of a POST, so an address alone does nothing. ReadOnly is seen to here
// and not only where links are left out. Who did it, from the guard, goes into the changelog and
// the log.
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
	form, from := r.Form, r.Form
	if r.Method == http.MethodPost {
		from = r.PostForm
	}
	a := actions[from.Get("action")]
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
	if at, err := parsePlace(form.Get("back")); err == nil {
		back += at.text
	}
	if r.Method == http.MethodGet {
		p.ask(w, r, a, form, back, nil)
		return
	}
	ctx := throttle.WithActor(r.Context(), auth.User(r.Context()))
	if err := p.spell(a, r, form); err != nil {
		p.ask(w, r, a, form, back, err)
		return
	}
	if err := a.do(ctx, p, form); err != nil {
		p.ask(w, r, a, form, back, err)
		return
	}
	p.Log.Info("changed on the page", "action", form.Get("action"), "by", auth.User(ctx), "what", display.Visible(whatOf(form), shortText))
	// Whoever looks sees it now, not in the next turn or when a view reads again.
	p.reader.again()
	redirect(w, back)
}

// spell brings a key that a user typed into the spelling of the jobs that use the limit.
func (p *Page) spell(a *action, r *http.Request, form url.Values) error {
	if p.SpellKey == nil || !a.asks("key", r) || form.Get("key") == "" {
		return nil
	}
	key, err := p.SpellKey(form.Get("limit"), form.Get("key"))
	if err == nil {
		form.Set("key", key)
	}
	return err
}

// explain says why an action was not done, with the status to say it under: 503 where
// the limiter says that Redis is not there, 404 where what it is about is gone, and else
// 422, for what was typed and for whatever asynq says.
func explain(err error) (code int, says string) {
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		return http.StatusServiceUnavailable, "Redis cannot be reached: " + err.Error()
	case errors.Is(err, throttle.ErrNoLimit),
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
	d := asked{action: a, Name: f.Get("action"), What: short(whatOf(f)), Back: back, Wrong: p.redactor.shown(says, 500)}
	if costs, ok := errors.AsType[*costsJobs](wrong); ok {
		d.Meant = costs.meant
	}
	named := maps.Clone(f)
	maps.DeleteFunc(named, func(name string, _ []string) bool { return name == "meant" || a.asks(name, r) })
	d.To = "./do?" + named.Encode()
	fields, err := p.fields(r, a, f)
	if err == nil && a.jobs != nil && wrong == nil {
		d.What, err = p.whichJobs(r.Context(), a.jobs, f)
	}
	if err != nil {
		d.Wrong = display.Visible(err.Error(), 500)
	}
	d.Fields = fields
	p.write(w, code, "do", frame{Page: p, Title: a.Verb + " " + d.What, Data: d})
}

// fields are what the form asks for, filled with what holds now or was given. A limit
// that has no rate or no capacity is not asked for one. What holds now comes from the
// snapshot, so to ask costs Redis nothing while somebody looks.
func (p *Page) fields(r *http.Request, a *action, f url.Values) ([]field, error) {
	var list []field
	add := func(name, label, now, hint string) {
		if f.Has(name) {
			now = f.Get(name)
		}
		list = append(list, field{name, label, display.Visible(now, 300), hint})
	}
	var limit throttle.Limit
	for _, row := range p.reader.latest(r.Context()).Limits {
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
			add(name, "For", "10m", "such as 90s, 24h or 7d")
		case name == "key" && a.asks(name, r):
			add(name, "Key", "", "empty for a limit without keys")
		}
	}
	return list, nil
}

// action is something that changes what a page shows. Each is asked for on a page
// of its own, which says what it does, and done when that is confirmed. So it needs
// no script, a link does nothing by itself, and a reload does nothing twice: after
// the POST the browser is sent back to where it came from.
//
// Another site can neither make the POST (see New) nor lay the page with the button
// under one of its own, and what it can link to only asks.
type action struct {
	Verb  string // on the button
	Says  string // what it does
	Grave bool   // whether what is gone then does not come back
	// fields are what the form asks for, beside what the link has named.
	fields []string
	// jobs is what is done to jobs; nil where it is done to something else.
	jobs *inspect.Action
	// do does it, put down to who ctx says, or fails with an error for who pressed the
	// button. The form is as it came: what it names may be wrong, or gone.
	do func(ctx context.Context, p *Page, f url.Values) error
}

// actions are those that there are, by their name in the form. What one says here is a
// promise to who presses the button.
var actions = map[string]*action{
	"pause": {Verb: "Pause", Says: "It hands out no permits until it is resumed. What waits goes on waiting, and what runs goes on running.", do: func(ctx context.Context, p *Page, f url.Values) error {
		return p.Limiter.Pause(ctx, f.Get("limit"))
	}},
	"resume": {Verb: "Resume", Says: "It hands out permits again, at once and at its rate.", do: func(ctx context.Context, p *Page, f url.Values) error {
		return p.Limiter.Resume(ctx, f.Get("limit"))
	}},
	"change": {Verb: "Change", Says: "It holds at once, also for those who wait. What was counted counts on. It stays until the limit changes in the config file.", fields: []string{"rate", "capacity"}, do: change},
	"reset": {Verb: "Reset", Grave: true, Says: "What was counted is forgotten, as if nothing had been taken, and a block ends. More may go out then than the limit allows.", fields: []string{"key"}, do: func(ctx context.Context, p *Page, f url.Values) error {
		return p.Limiter.Reset(ctx, f.Get("limit"), f.Get("key"))
	}},
	"block": {Verb: "Block", Says: "The key gets no permits for that time; all other keys go on.", fields: []string{"key", "for"}, do: block},
	"unblock": {Verb: "Unblock", Says: "The key gets permits again at once.", fields: []string{"key"}, do: func(ctx context.Context, p *Page, f url.Values) error {
		return p.Limiter.Block(ctx, f.Get("limit"), f.Get("key"), time.Time{})
	}},
	"run":     doJobs("Run", inspect.Run, "They go to the ends of their queues, and obey their limits as new ones do."),
	"cancel":  doJobs("Cancel", inspect.Cancel, "Their workers are asked to end them, which is for the handlers to heed. What ends so has failed, and is tried again if it has attempts left."),
	"archive": doJobs("Archive", inspect.Archive, "They are given up. They can be run later."),
	"delete":  doJobs("Delete", inspect.Delete, "They and their payloads are gone then."),
}

// asks reports whether the form of an action has a field that can be written in. The key of a
// link stays as it is.
func (a *action) asks(name string, r *http.Request) bool {
	return slices.Contains(a.fields, name) && (name != "key" || !r.URL.Query().Has("key"))
}

// change sets the rate and the capacity, and leaves to Set whether the limit is valid
// with them; all else of the limit stays, as it was read a
// moment before: of two who change one limit at the same time the later counts. One that
// refuses jobs which wait is made when exactly it is asked for a second time.
func change(ctx context.Context, p *Page, f url.Values) error {
	was, _, err := p.Limiter.Internals().Key(ctx, f.Get("limit"), "")
	if err != nil {
		return err
	}
	l := was
	// What the form did not ask for stays as it is.
	if text := f.Get("rate"); f.Has("rate") {
		if l.Rate, err = throttle.ParseRate(strings.TrimSpace(text)); err != nil {
			return err
		}
	}
	if text := f.Get("capacity"); f.Has("capacity") {
		if l.Capacity, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return &throttle.FieldError{Field: "capacity", Value: strconv.Quote(text), Want: "want a whole number"}
		}
	}
	if f.Get("meant") != l.String() {
		hit, err := p.queues.LimitChangeImpact(ctx, was, l)
		if err != nil {
			return err
		}
		if hit != "" {
			return &costsJobs{errors.New(hit + "; press Change once more if that is meant"), l.String()}
		}
	}
	return p.Limiter.Set(ctx, l)
}

// costsJobs is about a change that jobs which wait would not outlive, and meant is that
// change.
type costsJobs struct {
	error
	meant string
}

// block shuts a key for a while, by Redis's clock: that of this machine may differ, and
// the block would be as much too long or too short.
func block(ctx context.Context, p *Page, f url.Values) error {
	d, err := duration.Parse(strings.TrimSpace(f.Get("for")))
	if err != nil || d <= 0 {
		return &throttle.FieldError{Field: "for", Value: strconv.Quote(f.Get("for")), Want: "want a duration such as 90s, 24h or 7d"}
	}
	now, err := p.Redis.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	return p.Limiter.Block(ctx, f.Get("limit"), f.Get("key"), now.Add(d))
}

// An action on all jobs of a filter takes mostAtOnce of them, and atOnce of time: a browser
// waits for the answer.
const (
	mostAtOnce = 10_000
	atOnce     = 20 * time.Second
)

// jobActions are the actions on jobs, in the order of their buttons.
var jobActions = []string{"run", "cancel", "archive", "delete"}

func doJobs(verb string, a *inspect.Action, says string) *action {
	do := func(ctx context.Context, p *Page, f url.Values) error {
		jobs, filter, err := p.findJobs(ctx, a, f)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, atOnce)
		defer cancel()
		done, err := p.queues.Apply(ctx, a, filter, jobs)
		switch {
		case err != nil && done > 0:
			return fmt.Errorf("%s %s, and not the others: %w", a.Done, display.Count(done, "job"), err)
		case err == nil && done == 0:
			return errors.New("nothing was done: what was meant has changed meanwhile")
		}
		return err
	}
	return &action{Verb: verb, Says: says, Grave: a == inspect.Delete, jobs: a, do: do}
}

// findJobs lists the jobs that a form means. One that it names is there, and it can be done
// to it.
func (p *Page) findJobs(ctx context.Context, a *inspect.Action, f url.Values) ([]throttle.JobID, inspect.Filter, error) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	if f.Get("id") != "" {
		job, err := p.queues.Job(ctx, throttle.JobID{Queue: f.Get("queue"), ID: f.Get("id")})
		if err == nil {
			if not := a.Excludes(job.State); not != "" {
				err = fmt.Errorf("the job is %s: %s", job.State, not)
			}
		}
		if err != nil {
			return nil, inspect.Filter{}, err
		}
		return []throttle.JobID{job.JobID()}, inspect.Filter{Queue: job.Queue}, nil
	}
	filter, err := filterOf(ctx, p.queues.Limiter, f)
	if err == nil && len(filter.States) == 0 {
		err = &throttle.FieldError{Field: "state", Value: "of any sort", Want: "want some of " + fmt.Sprint(a.States)}
	}
	if err = cmp.Or(err, a.Validate(filter)); err != nil {
		return nil, filter, err
	}
	jobs, err := p.queues.Find(ctx, a, filter, mostAtOnce)
	return jobs, filter, err
}

func (p *Page) whichJobs(ctx context.Context, a *inspect.Action, f url.Values) (string, error) {
	jobs, _, err := p.findJobs(ctx, a, f)
	switch {
	case err != nil || f.Get("id") != "":
		return short(whatOf(f)), err
	case len(jobs) == 0:
		return "no job", errors.New("no job is meant")
	case len(jobs) == mostAtOnce:
		return fmt.Sprintf("the first %s: %s", display.Count(len(jobs), "job"), short(filterText(f))), nil
	}
	return fmt.Sprintf("%s: %s", display.Count(len(jobs), "job"), short(filterText(f))), nil
}

// whatOf names what an action is done to, for its page and the log, whatever else a link has
// named. The text is foreign: whoever shows it makes it visible.
func whatOf(f url.Values) string {
	name := f.Get("action")
	switch a := actions[name]; {
	case a.jobs != nil && f.Get("id") != "":
		return "job " + f.Get("id") + " of queue " + f.Get("queue")
	case a.jobs != nil:
		return "jobs: " + filterText(f)
	case slices.Contains(a.fields, "key") && f.Get("key") != "":
		return f.Get("limit") + " of " + f.Get("key")
	}
	return f.Get("limit")
}
