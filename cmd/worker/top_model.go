package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/headgate/headgate/throttle"
)

// mode is what keys mean at present.
type mode int

const (
	choosing  mode = iota // of a limit
	filtering             // writing a part of limits' names
	searching             // writing a job's id
	reading               // what is known of a job
	changing              // whether to change a limit as proposed
)

// topSort is a column that limits are sorted by.
type topSort int

const (
	byWaiting topSort = iota
	byLast
	byName
	topSorts
)

// topModel is what top shows, as bubbletea wants it: Update returns the next one.
type topModel struct {
	source        topSource
	width, height int

	view   topView
	chosen string // a limit's name
	sort   topSort
	filter string
	mode   mode
	input  textinput.Model
	job    [][2]string
	said   string // what came of the last key
	fatal  error

	// The change that is proposed: proposal instead of now, or else a pause.
	now, proposal throttle.Limit
	pausing       bool
}

// What the model hears beside keys.
type (
	looked struct {
		view topView
		err  error
	}
	found struct {
		lines [][2]string
		err   error
	}
	changed struct {
		what string
		err  error
	}
	lookAgain struct{}
)

func newTopModel(source topSource) topModel {
	return topModel{source: source, width: 80, height: 24, input: textinput.New()}
}

// refresh is how long after a look the next one begins.
const refresh = time.Second

// patient bounds one question to Redis.
const patient = 10 * time.Second

// Init implements tea.Model.
func (m topModel) Init() tea.Cmd { return m.look() }

func (m topModel) look() tea.Cmd {
	source, chosen := m.source, m.chosen
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		view, err := source.look(ctx, chosen)
		return looked{view, err}
	}
}

// Update implements tea.Model.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case lookAgain:
		return m, m.look()
	case looked:
		if msg.err != nil {
			m.said = msg.err.Error()
		} else {
			m.view = msg.view
			m.chosen = cmp.Or(m.chosen, msg.view.chosen)
			if m.chosen != msg.view.chosen { // it was another when the look began
				m.view.keys = nil
			}
		}
		return m, tea.Tick(refresh, func(time.Time) tea.Msg { return lookAgain{} })
	case found:
		m.mode, m.job = reading, msg.lines
		if msg.err != nil {
			m.mode, m.said = choosing, msg.err.Error()
		}
	case changed:
		m.said = msg.what
		if msg.err != nil {
			m.said = msg.err.Error()
		}
	case tea.KeyMsg:
		return m.keys(msg)
	}
	return m, nil
}

// keys takes keys one by one: those that are pressed fast come as one.
func (m topModel) keys(msg tea.KeyMsg) (tea.Model, tea.Cmd) {
	if msg.Type != tea.KeyRunes || len(msg.Runes) < 2 || m.mode == filtering || m.mode == searching {
		return m.key(msg)
	}
	var next tea.Model = m
	var cmds []tea.Cmd
	for _, r := range msg.Runes {
		var cmd tea.Cmd
		next, cmd = next.(topModel).key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
		cmds = append(cmds, cmd)
	}
	return next, tea.Batch(cmds...)
}

// key is what a key does.
func (m topModel) key(key tea.KeyMsg) (tea.Model, tea.Cmd) {
	if key.Type == tea.KeyCtrlC {
		return m, tea.Quit
	}
	switch m.mode {
	case filtering, searching:
		return m.write(key)
	case changing:
		return m.decide(key)
	case reading:
		m.mode = choosing
		return m, nil
	}
	m.said = ""
	switch key.String() {
	case "q":
		return m, tea.Quit
	case "up", "k":
		m.move(-1)
	case "down":
		m.move(1)
	case "s":
		m.sort = (m.sort + 1) % topSorts
	case "esc":
		m.filter = ""
	case "/":
		return m.ask(filtering, "only limits with: ", m.filter)
	case "j":
		return m.ask(searching, "id of the job: ", "")
	case "p", "+", "-":
		m.propose(key.String())
	}
	return m, nil
}

// ask has a text written.
func (m topModel) ask(mode mode, prompt, value string) (tea.Model, tea.Cmd) {
	m.mode = mode
	m.input.Prompt = prompt
	m.input.SetValue(value)
	m.input.CursorEnd()
	return m, m.input.Focus()
}

// write takes a key of a text.
func (m topModel) write(key tea.KeyMsg) (tea.Model, tea.Cmd) {
	switch key.Type {
	case tea.KeyEsc:
		m.mode = choosing
		return m, nil
	case tea.KeyEnter:
		text, was := m.input.Value(), m.mode
		m.mode = choosing
		if was == filtering {
			m.filter = text
			m.move(0)
			return m, nil
		}
		return m, m.find(text)
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(key)
	return m, cmd
}

func (m topModel) find(id string) tea.Cmd {
	source := m.source
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		lines, err := source.job(ctx, id)
		return found{lines, err}
	}
}

// propose asks whether to change the chosen limit.
func (m *topModel) propose(key string) {
	for _, l := range m.view.limits {
		if l.Name == m.chosen {
			m.mode, m.now, m.proposal, m.pausing = changing, l.Limit, l.Limit, key == "p"
			m.turn(key)
		}
	}
}

// turn changes the proposal by one step.
func (m *topModel) turn(key string) {
	switch {
	case m.pausing:
		m.proposal.Paused = !m.now.Paused
	case key == "+" || key == "-":
		m.proposal = raised(m.proposal, key == "+")
	}
}

// decide takes the answer to a proposal.
func (m topModel) decide(key tea.KeyMsg) (tea.Model, tea.Cmd) {
	switch key.String() {
	case "+", "-":
		m.turn(key.String())
	case "y", "enter":
		m.mode = choosing
		return m, m.change()
	case "n", "esc", "q":
		m.mode = choosing
	}
	return m, nil
}

func (m topModel) change() tea.Cmd {
	source, was, to, pausing := m.source, m.now, m.proposal, m.pausing
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		if !pausing {
			return changed{to.Name + " is " + to.String() + " now", source.set(ctx, was, to)}
		}
		what := "resumed "
		if to.Paused {
			what = "paused "
		}
		return changed{what + to.Name, source.pause(ctx, to.Name, to.Paused)}
	}
}

// move chooses another limit.
func (m *topModel) move(by int) {
	limits := m.shown()
	if len(limits) == 0 {
		return
	}
	at := slices.IndexFunc(limits, func(l topLimit) bool { return l.Name == m.chosen })
	if to := limits[max(0, min(len(limits)-1, at+by))].Name; to != m.chosen {
		m.chosen, m.view.keys = to, nil // its keys come with the next look
	}
}

// shown is the limits that the filter leaves, sorted.
func (m topModel) shown() []topLimit {
	var limits []topLimit
	for _, l := range m.view.limits {
		if strings.Contains(l.Name, m.filter) {
			limits = append(limits, l)
		}
	}
	slices.SortStableFunc(limits, func(a, b topLimit) int {
		switch m.sort {
		case byWaiting:
			return cmp.Compare(b.waiting, a.waiting)
		case byLast:
			return cmp.Compare(b.last, a.last)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return limits
}
