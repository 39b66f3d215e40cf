package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/headgate/headgate/throttle"
)

// topFake is limits without Redis. It notes what is done to them.
type topFake struct {
	view topView
	done *[]string
}

func (f topFake) look(_ context.Context, chosen string) (topView, error) {
	view := f.view
	view.chosen = chosen
	if chosen == "" {
		view.chosen = view.limits[0].Name
	}
	return view, nil
}

func (f topFake) job(_ context.Context, id string) ([][2]string, error) {
	if id != "42" {
		return nil, errors.New("there is no job " + id)
	}
	return [][2]string{{"id", id}, {"payload", evilLong}}, nil
}

func (f topFake) set(_ context.Context, _, l throttle.Limit) error {
	*f.done = append(*f.done, "set "+l.Name+" "+l.String())
	return nil
}

func (f topFake) pause(_ context.Context, name string, paused bool) error {
	*f.done = append(*f.done, map[bool]string{true: "pause ", false: "resume "}[paused]+name)
	return nil
}

func newTopFake() topFake {
	limit := func(name string, wanted int, last time.Duration) topLimit {
		return topLimit{
			Limit:   throttle.Limit{Name: name, Kind: throttle.Funnel, Rate: throttle.PerSecond(20)},
			waiting: wanted, keys: 1, since: 8 * time.Minute, last: last, known: true, allowed: 19.5,
		}
	}
	view := topView{
		limits: []topLimit{limit("api", 3, time.Hour), limit("host", 70, time.Minute), limit("slots", 0, 0)},
		keys:   []topKey{{throttle.Meter{Key: evilKey, Capacity: 1, LastIn: time.Minute, Known: true}, 70}}, jobs: 73, told: true,
	}
	return topFake{view, new([]string)}
}

// press gives the model keys, and whatever they have it do, but no ticks.
func press(t *testing.T, m tea.Model, keys ...string) topModel {
	t.Helper()
	for _, key := range keys {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)}
		if named, ok := map[string]tea.KeyType{"up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEsc}[key]; ok {
			msg = tea.KeyMsg{Type: named}
		}
		var cmd tea.Cmd
		m, cmd = m.Update(msg)
		if cmd == nil || m.(topModel).mode == filtering || m.(topModel).mode == searching {
			continue // it would only blink
		}
		m, _ = m.Update(cmd())
	}
	return m.(topModel)
}

func started(t *testing.T, f topFake) topModel {
	t.Helper()
	m := newTopModel(f)
	next, _ := m.Update(m.Init()())
	return next.(topModel)
}

func TestTopShows(t *testing.T) {
	m := started(t, newTopFake())
	view := m.View()
	for _, want := range []string{
		"73 jobs wait, at 2 of 3 limits, the longest for 8m0s; sorted by jobs that wait",
		"host         funnel 20/s", "19.5", "8m0s", "1m0s", "KEYS OF api", "PERMITS IN", "1/1",
	} {
		if !strings.Contains(view, want) {
			t.Errorf("no %q in\n%s", want, view)
		}
	}
	if strings.Index(view, "host ") > strings.Index(view, "api ") {
		t.Errorf("host does not come first:\n%s", view)
	}
	sorted := press(t, m, "s", "s").View()
	if strings.Index(sorted, "host ") < strings.Index(sorted, "api ") {
		t.Errorf("api does not come first by name:\n%s", sorted)
	}
	filtered := press(t, m, "/", "o", "s", "enter").View()
	if strings.Contains(filtered, "api  ") || !strings.Contains(filtered, "KEYS OF host") || !strings.Contains(filtered, `1 of 1 limits, the longest for 8m0s with "os"`) {
		t.Errorf("filtered:\n%s", filtered)
	}
}

func TestTopChanges(t *testing.T) {
	f := newTopFake()
	m := press(t, started(t, f), "up", "++-", "-", "-")
	if want := "host: funnel 20/s capacity 1 → funnel 18/s capacity 1? y n, or + - for more"; !strings.Contains(m.View(), want) {
		t.Errorf("no %q in\n%s", want, m.View())
	}
	m = press(t, m, "y", "p", "n", "p", "y")
	if want := "paused host"; !strings.Contains(m.View(), want) {
		t.Errorf("no %q in\n%s", want, m.View())
	}
	if got, want := strings.Join(*f.done, ", "), "set host funnel 18/s capacity 1, pause host"; got != want {
		t.Errorf("done: %s; want %s", got, want)
	}
}

// What is asked is seen to its end.
func TestTopAsksInFull(t *testing.T) {
	f := newTopFake()
	f.view.limits[1].Apps = []string{"crawler", "mailer", "reports", "thumbnails", "webhooks"}
	view := press(t, started(t, f), "up", "-").View()
	if _, asked, _ := strings.Cut(view, "host: funnel"); !strings.Contains(asked, "funnel 18/s") || !strings.Contains(asked, "y n, or") {
		t.Errorf("the question is cut:\n%s", view)
	}
}

func TestTopFindsJobs(t *testing.T) {
	m := started(t, newTopFake())
	if view := press(t, m, "j", "4", "2", "enter").View(); !strings.Contains(view, "id       42") {
		t.Errorf("found:\n%s", view)
	}
	if view := press(t, m, "j", "7", "enter").View(); !strings.Contains(view, "there is no job 7") || !strings.Contains(view, "LIMIT") {
		t.Errorf("not found:\n%s", view)
	}
	if view := press(t, m, "j", "4", "2", "esc").View(); !strings.Contains(view, "LIMIT") {
		t.Errorf("given up:\n%s", view)
	}
}

// Whatever is shown fits, and nothing in it but the styles is obeyed.
func TestTopFits(t *testing.T) {
	m := started(t, newTopFake())
	views := []topModel{m, press(t, m, "j", "4", "2", "enter"), press(t, m, "j", evil, "enter"), press(t, m, "+"), press(t, m, "/", "x", "enter", "down")}
	for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 200, Height: 60}, {Width: 20, Height: 3}} {
		for _, v := range views {
			sized, _ := v.Update(size)
			view := sized.View()
			if w, h := lipgloss.Size(view); w > size.Width || h > size.Height {
				t.Errorf("%d×%d on %d×%d:\n%s", w, h, size.Width, size.Height, view)
			}
			checkShown(t, "top", view)
		}
	}
}

func TestRaised(t *testing.T) {
	for _, tt := range []struct {
		limit    throttle.Limit
		up, down string
	}{
		{throttle.Limit{Kind: throttle.Funnel, Rate: throttle.PerSecond(200)}, "funnel 220/s capacity 1", "funnel 180/s capacity 1"},
		{throttle.Limit{Kind: throttle.Funnel, Rate: throttle.Every(2 * time.Second)}, "funnel 2/2s capacity 1", "funnel 1/2.2s capacity 1"},
		{throttle.Limit{Kind: throttle.Concurrency, Capacity: 1}, "concurrency capacity 2", "concurrency capacity 1"},
	} {
		if up, down := raised(tt.limit, true).String(), raised(tt.limit, false).String(); up != tt.up || down != tt.down {
			t.Errorf("%s: up %s, down %s; want %s, %s", tt.limit, up, down, tt.up, tt.down)
		}
	}
}
