package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/plan"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// sayPlan says when the first and the last job would run, as things stand. It adds
// nothing.
func sayPlan(ctx context.Context, source *source) error {
	p, err := plan.New(ctx, source.config)
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Basis != "" {
		fmt.Fprintln(source.stdio.Err, "enqueue: "+p.Basis)
	}
	for l := range source.jobs() {
		rule, err := l.Rule(source.config)
		if err == nil {
			err = p.Add(ctx, l.Job, rule)
		}
		if errors.Is(err, throttle.ErrUnavailable) {
			return err
		}
		if err != nil {
			source.bad.add(l, err)
		}
	}
	source.bad.sum()
	first, last, err := p.When(ctx)
	if err != nil {
		return err
	}
	if err := printPlan(source.stdio.Out, source.json, p.Jobs, moment{first}, moment{last}); err != nil {
		return err
	}
	return source.verdict()
}

func printPlan(out io.Writer, asJSON bool, jobs int, first, last moment) error {
	if asJSON {
		view := map[string]any{"jobs": jobs}
		if jobs > 0 {
			view["first"], view["last"] = first.view(), last.view()
		}
		return cli.JSON(out, view)
	}
	lines := [][2]string{{"jobs", fmt.Sprintf("%d, of which none is added", jobs)}}
	if jobs > 0 {
		lines = append(lines, [2]string{"first", first.String()}, [2]string{"last", last.String()})
	}
	return cli.Fields(out, lines)
}

// moment prints when a job would run, and the meter that it waits longest for.
type moment struct{ lanes.Expected }

func (m moment) view() map[string]any {
	view := map[string]any{"in_s": m.In.Seconds(), "at": time.Now().Add(m.In), "about": m.About}
	if !m.Known {
		view["in_s"], view["at"] = nil, nil
	}
	if m.Limit != "" {
		view["limit"], view["key"] = m.Limit, cli.Text(m.Key)
	}
	return view
}

func (m moment) String() string {
	when, about := "at once", ""
	if m.About {
		about = "about "
	}
	if !m.Known {
		when = "unknown"
	} else if m.In > 0 {
		when = fmt.Sprintf("%sin %s, at %s", about, m.In.Round(time.Millisecond), time.Now().Add(m.In).Format(time.DateTime+" -07:00"))
	}
	switch {
	case m.Limit == "":
		return when
	case m.Key == "":
		return when + ", when limit " + m.Limit + " lets it"
	}
	return fmt.Sprintf("%s, when limit %s of %s lets it", when, m.Limit, m.Key)
}
