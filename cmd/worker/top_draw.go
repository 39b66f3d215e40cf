package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/headgate/headgate/internal/cli"
)

var (
	headStyle   = lipgloss.NewStyle().Bold(true)
	chosenStyle = lipgloss.NewStyle().Reverse(true)
	dimStyle    = lipgloss.NewStyle().Faint(true)
)

// View implements tea.Model.
func (m topModel) View() string {
	foot := strings.Split(lipgloss.NewStyle().Width(m.width).Render(m.foot()), "\n")
	foot = foot[:min(len(foot), m.height)] // a question is shown to its end
	above := m.height - len(foot)
	lines := m.body(above)
	for len(lines) < above {
		lines = append(lines, "")
	}
	lines = append(lines[:above], foot...)
	cut := lipgloss.NewStyle().MaxWidth(m.width)
	for i, line := range lines {
		lines[i] = cut.Render(line)
	}
	return strings.Join(lines, "\n")
}

// body is all but the foot.
func (m topModel) body(height int) []string {
	if m.mode == reading {
		return fieldLines(m.job, m.width)
	}
	limits := m.shown()
	lines := []string{m.head(limits), headStyle.Render(limitLine("LIMIT", "DEFINITION", "OK/S", "DENIED/S", "WAITING", "KEYS", "SINCE", "LAST IN"))}
	rows := max(1, (height-4)*2/3) // the rest is for the keys
	at := slices.IndexFunc(limits, func(l topLimit) bool { return l.Name == m.chosen })
	from := max(0, at-rows+1)
	for i, l := range limits[from:min(len(limits), from+rows)] {
		line := l.line()
		if from+i == at {
			line = chosenStyle.Render(line)
		}
		lines = append(lines, line)
	}
	if m.chosen == "" {
		return lines
	}
	lines = append(lines, "", headStyle.Render(keyLine("KEYS OF "+m.chosen, "WAITING", "IN USE", "PERMITS IN")))
	for _, b := range m.view.keys {
		if len(lines) == height {
			break
		}
		lines = append(lines, keyLine(keyName(b.Key), fmt.Sprint(b.jobs), fmt.Sprintf("%d/%d", b.Used(), b.Capacity), lasts(b.LastIn, b.Known)))
	}
	return lines
}

// head says in a sentence how things are.
func (m topModel) head(limits []topLimit) string {
	on, since := 0, time.Duration(0)
	for _, l := range limits {
		if l.waiting > 0 {
			on, since = on+1, max(since, l.since)
		}
	}
	text := "nothing waits for a permit"
	switch {
	case m.view.jobs > 0 && !m.view.told:
		text = fmt.Sprintf("%s; nobody says for what: no worker runs", waiting(m.view.jobs))
	case m.view.jobs > 0:
		text = fmt.Sprintf("%s, at %d of %d limits, the longest for %s", waiting(m.view.jobs), on, len(limits), since.Round(time.Second))
	}
	if m.filter != "" {
		text += fmt.Sprintf(" with %q in their names", m.filter)
	}
	return text + "; sorted by " + [...]string{"jobs that wait", "when the last runs", "name"}[m.sort]
}

// line is a limit in the table.
func (l topLimit) line() string {
	definition := l.Limit.String()
	if l.state != "" {
		definition = strings.ToUpper(l.state[:1]) + l.state[1:] + "; " + definition
	}
	since, last := "-", "-"
	if l.waiting > 0 {
		since, last = l.since.Round(time.Second).String(), lasts(l.last, l.known)
	}
	return limitLine(l.Name, definition, fmt.Sprintf("%.1f", l.allowed), fmt.Sprintf("%.1f", l.denied),
		fmt.Sprint(l.waiting), fmt.Sprint(l.keys), since, last)
}

// lasts is how long until the last one runs.
func lasts(d time.Duration, known bool) string {
	if !known {
		return "unknown"
	}
	return d.Round(time.Second).String()
}

func waiting(jobs int) string {
	if jobs == 1 {
		return "1 job waits"
	}
	return fmt.Sprintf("%d jobs wait", jobs)
}

func limitLine(name, definition, ok, denied, waiting, keys, since, last string) string {
	return fmt.Sprintf("%s %s %6s %8s %7s %6s %7s %s", pad(name, 12), pad(definition, 18), ok, denied, waiting, keys, since, last)
}

func keyLine(key, waiting, used, last string) string {
	return fmt.Sprintf("%s %8s %8s  %s", pad(key, 42), waiting, used, last)
}

// pad is a text of exactly that width.
func pad(text string, width int) string {
	text = cli.Cell(text)
	if lipgloss.Width(text) > width {
		cut := []rune(text)
		for lipgloss.Width(string(cut)) >= width {
			cut = cut[:len(cut)-1]
		}
		text = string(cut) + "…"
	}
	return text + strings.Repeat(" ", width-lipgloss.Width(text))
}

// fieldLines is what cli.Fields writes, in lines that fit.
func fieldLines(fields [][2]string, width int) []string {
	var text strings.Builder
	_ = cli.Fields(&text, fields) // a Builder takes all
	wrapped := lipgloss.NewStyle().Width(width).Render(strings.TrimSuffix(text.String(), "\n"))
	return strings.Split(wrapped, "\n")
}

// foot is the last line, or some: what is asked, or what came of the last key, or which
// keys there are.
func (m topModel) foot() string {
	switch {
	case m.mode == filtering || m.mode == searching:
		return m.input.View()
	case m.mode == reading:
		return dimStyle.Render("any key: back")
	case m.mode == changing && m.pausing && m.proposal.Paused:
		return fmt.Sprintf("pause %s for everybody? y n", m.now.Name)
	case m.mode == changing && m.pausing:
		return fmt.Sprintf("resume %s? y n", m.now.Name)
	case m.mode == changing:
		return fmt.Sprintf("%s: %s → %s? y n, or + - for more", m.now.Name, m.now, m.proposal)
	case m.said != "":
		return cli.Cell(m.said)
	}
	return dimStyle.Render("↑↓ choose  p pause/resume  + - rate  j job  s sort  / filter  q quit")
}
