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

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// action changes a limit, a key or a job. A GET shows a form that asks for a confirmation; a POST of
// the form executes the action and redirects the browser back. So the page needs no script, and
// neither a link nor a reload can execute an action.
type action struct {
	Verb   string
	Text   string          // the effect, in a sentence
	Grave  bool            // cannot be undone
	fields []string        // that the user fills in; other values are in the address
	jobs   *inspect.Action // nil for an action on a limit
	// do executes the action. ctx names the user. Errors of do are shown to the user.
	do func(ctx context.Context, p *Page, f url.Values) error
}

// actions are all actions by their name in the form.
var actions = map[string]*action{
	"pause":  {Verb: "Pause", Text: "It hands out no permits until it is resumed. Waiting jobs stay, and running jobs continue.", do: onLimit(func(ctx context.Context, l *waitdb.DB, limit string) error { return l.Pause(ctx, limit) })},
	"resume": {Verb: "Resume", Text: "It hands out permits again, at once and at its rate.", do: onLimit(func(ctx context.Context, l *waitdb.DB, limit string) error { return l.Resume(ctx, limit) })},
	"change": {Verb: "Change", Text: "It applies at once, also to waiting jobs. Permits taken so far still count. It stays until the limit changes in the config file.", fields: []string{"rate", "capacity"}, do: changeLimit},
	"reset":  {Verb: "Reset", Grave: true, Text: "All permits become available again, and a block ends. More calls than the limit allows may be sent.", fields: []string{"key"}, do: onKey(func(ctx context.Context, l *waitdb.DB, limit, key string) error { return l.Reset(ctx, limit, key) })},
	"block":  {Verb: "Block", Text: "The key gets no permits for that time. Other keys are not affected.", fields: []string{"key", "for"}, do: block},
	"unblock": {Verb: "Unblock", Text: "The key gets permits again at once.", fields: []string{"key"}, do: onKey(func(ctx context.Context, l *waitdb.DB, limit, key string) error {
		return l.Block(ctx, limit, key, time.Time{})
	})},
	"run":     newJobAction("Run", inspect.Run, "It goes to the end of its queue, and needs permits like a new job."),
	"cancel":  newJobAction("Cancel", inspect.Cancel, "Its context is canceled. If the handler returns an error, the attempt counts as failed, and the job is retried if it has retries left."),
	"archive": newJobAction("Archive", inspect.Archive, "It will not run by itself. It can be run later."),
	"delete":  newJobAction("Delete", inspect.Delete, "The job and its payload are deleted."),
}

// onLimit returns an action on each limiter that counts the form's limit.
func onLimit(do func(ctx context.Context, l *waitdb.DB, limit string) error) func(context.Context, *Page, url.Values) error {
	return func(ctx context.Context, p *Page, f url.Values) error {
		limit := f.Get("limit")
		return p.queues.EachPlace(limit, nil, func(l *waitdb.DB, _ shard.Shard) error { return do(ctx, l, limit) })
	}
}

// onKey returns an action on each limiter that counts the form's key.
func onKey(do func(ctx context.Context, l *waitdb.DB, limit, key string) error) func(context.Context, *Page, url.Values) error {
	return func(ctx context.Context, p *Page, f url.Values) error {
		limit, key := f.Get("limit"), f.Get("key")
		return p.queues.EachPlace(limit, &key, func(l *waitdb.DB, _ shard.Shard) error { return do(ctx, l, limit, key) })
	}
}

// jobActions are the actions on jobs, in the order of their buttons.
var jobActions = []string{"run", "cancel", "archive", "delete"}

// hasInput reports whether the user fills in this field of the form. A link may name the key already.
func (a *action) hasInput(name string, r *http.Request) bool {
	return slices.Contains(a.fields, name) && (name != "key" || !r.URL.Query().Has("key"))
}

// serveAction shows the form of an action, or executes a confirmed action. The address names the
// limit, the key or the job, because browsers change some bytes in form fields. The name of
// the action in a POST is read from the form alone, so a request without the form executes nothing.
func (p *Page) serveAction(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		p.fail(w, http.StatusMethodNotAllowed, "Use GET to open an action and POST to execute it.")
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
		p.fail(w, http.StatusForbidden, "This page is read-only.")
		return
	}
	back := backTo(form.Get("back"))
	if r.Method == http.MethodGet {
		p.confirm(w, r, a, form, back, nil)
		return
	}
	ctx := throttle.WithActor(r.Context(), userOf(r.Context()))
	err := p.normalizeKey(a, r, form)
	if err == nil {
		err = a.do(ctx, p, form)
	}
	if err != nil {
		p.confirm(w, r, a, form, back, err)
		return
	}
	p.Log.Info("changed on the page", "action", form.Get("action"), "by", userOf(ctx), "what", display.Visible(objectOf(form), shortText))
	p.reader.read()
	redirect(w, back)
}

// normalizeKey normalizes the key in the form, if the user typed it.
func (p *Page) normalizeKey(a *action, r *http.Request, form url.Values) error {
	if p.NormalizeKey == nil || !a.hasInput("key", r) || form.Get("key") == "" {
		return nil
	}
	key, err := p.NormalizeKey(form.Get("limit"), form.Get("key"))
	if err == nil {
		form.Set("key", key)
	}
	return err
}

// confirmation is the data of the form that asks for a confirmation.
type confirmation struct {
	*action
	Name   string // of the action
	Object string // the limit, key or job
	To     string // address to which the form is sent
	Fields []field
	Back   string
	Wrong  string // error of the last attempt
}

// confirm shows the form of an action. After a failed attempt it shows the error. With JavaScript
// the form is a dialog.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request, a *action, f url.Values, back string, failed error) {
	code, text := http.StatusOK, ""
	switch {
	case failed == nil:
	case errors.Is(failed, throttle.ErrUnavailable):
		code, text = http.StatusServiceUnavailable, "Redis cannot be reached: "+failed.Error()
	case errors.Is(failed, throttle.ErrNoLimit), errors.Is(failed, asynq.ErrTaskNotFound), errors.Is(failed, asynq.ErrQueueNotFound):
		code, text = http.StatusNotFound, failed.Error()
	default:
		code, text = http.StatusUnprocessableEntity, failed.Error()
	}
	d := confirmation{action: a, Name: f.Get("action"), Object: short(objectOf(f)), Back: back, Wrong: p.redactor.shown(text, 500)}
	named := maps.Clone(f)
	maps.DeleteFunc(named, func(name string, _ []string) bool { return a.hasInput(name, r) })
	d.To = "./do?" + named.Encode()
	fields, err := p.fields(r, a, f)
	if err != nil {
		d.Wrong = display.Visible(err.Error(), 500)
	}
	d.Fields = fields
	p.write(w, code, "do", frame{Page: p, Title: a.Verb + " " + d.Object, Data: d})
}

// fields returns the fields of the form, with the values of f or else the current ones. A concurrency
// limit has no rate, and a window has no capacity.
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
		case name == "rate" && limit.Kind != throttle.Concurrency:
			add(name, "Rate", limit.Rate.String(), "such as 10/s, 2000/day or 1/2s")
		case name == "capacity" && limit.Capacity > 0:
			add(name, "Capacity", strconv.Itoa(limit.Capacity), "the most permits at once")
		case name == "for":
			add(name, "For", "10m", "such as 90s, 24h or 7d")
		case name == "key" && a.hasInput(name, r):
			add(name, "Key", "", "empty for a limit without keys")
		}
	}
	return list, nil
}

// changeLimit sets the rate and the capacity. It fails if the change would archive waiting jobs.
func changeLimit(ctx context.Context, p *Page, f url.Values) error {
	old, err := p.queues.ReadLimit(ctx, f.Get("limit"))
	if err != nil {
		return err
	}
	l := old
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
	impact, err := p.queues.LimitChangeImpact(ctx, old, l)
	if err == nil && impact != "" {
		err = fmt.Errorf("%s: use \"worker limits set %s --yes\" to make this change", impact, l.Name)
	}
	if err != nil {
		return err
	}
	return p.queues.SetLimit(ctx, l)
}

// block blocks a key by Redis's clock.
func block(ctx context.Context, p *Page, f url.Values) error {
	d, err := duration.Parse(strings.TrimSpace(f.Get("for")))
	if err != nil || d <= 0 {
		return &throttle.FieldError{Field: "for", Value: strconv.Quote(f.Get("for")), Want: "want a duration such as 90s, 24h or 7d"}
	}
	now, err := p.Redis.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	return onKey(func(ctx context.Context, l *waitdb.DB, limit, key string) error {
		return l.Block(ctx, limit, key, now.Add(d))
	})(ctx, p, f)
}

// newJobAction returns an action on the job that the form names.
func newJobAction(verb string, a *inspect.Action, text string) *action {
	do := func(ctx context.Context, p *Page, f url.Values) error {
		job, err := p.queues.Job(ctx, throttle.JobID{Queue: f.Get("queue"), ID: f.Get("id")})
		if err != nil {
			return err
		}
		if reason := a.Excludes(job.State); reason != "" {
			return fmt.Errorf("the job is %s: %s", job.State, reason)
		}
		done, err := p.queues.Apply(ctx, a, inspect.Filter{}, []throttle.JobID{job.JobID()})
		if err == nil && done == 0 {
			err = errors.New("nothing was done: the job has changed in the meantime")
		}
		return err
	}
	return &action{Verb: verb, Text: text, Grave: a == inspect.Delete, jobs: a, do: do}
}

// objectOf describes the limit, the key or the job of an action. The text is untrusted.
func objectOf(f url.Values) string {
	switch a := actions[f.Get("action")]; {
	case a.jobs != nil:
		return "job " + f.Get("id") + " of queue " + f.Get("queue")
	case slices.Contains(a.fields, "key") && f.Get("key") != "":
		return f.Get("limit") + " of " + f.Get("key")
	}
	return f.Get("limit")
}
