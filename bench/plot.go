package main

import (
	"fmt"
	"math"
	"slices"
)

// measure is one figure of the rows, as a panel shows it. A row without it has
// no bar or point.
type measure struct {
	title string
	of    func(backlogRow) (value float64, known bool)
	label func(value float64) string
}

func known(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

// short writes a figure with three digits or so.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.3g", v)
	case v < 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return thousands(int(math.Round(v)))
}

var (
	limitUsed = measure{"Share of the limit used, %", func(r backlogRow) (float64, bool) {
		v, ok := known(r.LimitUsed)
		return 100 * v, ok
	}, func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	denialsPerJob = measure{"Denials per job", func(r backlogRow) (float64, bool) { return known(r.Denials) }, short}
	cpuPerJob     = measure{"Redis CPU per job, ms", func(r backlogRow) (float64, bool) { return r.CPU, true }, short}
	latenessP99   = measure{"Lateness p99, ms: permit to handler", func(r backlogRow) (float64, bool) { return known(r.LatenessP99) }, short}
)

// about says in a few words what the systems are.
var about = map[string]string{
	"wiki":       "wiki: the pattern of asynq's wiki with redis_rate and short polls",
	"wiki-stock": "wiki-stock: the same at asynq's own polls",
	"bullmq":     "bullmq: its global rate limit",
}

// footnotes are as many lines as it takes to say that of the rows' systems.
func footnotes(rows []backlogRow) []string {
	const longest = 120 // characters of this size fit into the picture
	var lines []string
	for _, r := range rows {
		text, ok := about[r.System]
		if last := len(lines) - 1; ok && last >= 0 && len(lines[last]+"; "+text) <= longest {
			lines[last] += "; " + text
		} else if ok {
			lines = append(lines, text)
		}
	}
	return lines
}

// backlogPlot is a panel of bars for each measure, a bar for each system.
func backlogPlot(s spec, rows []backlogRow) *canvas {
	const width, panelWidth, barHeight = 860, 410, 26
	panelHeight := float64(len(rows))*barHeight + 48
	notes := footnotes(rows)
	c := &canvas{width: width, height: 74 + 2*panelHeight + float64(len(notes))*16}
	c.text(20, 34, left, "title", "A backlog under one limit: "+s.String())
	for i, m := range []measure{limitUsed, denialsPerJob, cpuPerJob, latenessP99} {
		x, y := 20+float64(i%2)*(panelWidth+10), 60+float64(i/2)*panelHeight
		c.bars(x, y, panelWidth, barHeight, m, rows)
	}
	for i, note := range notes {
		c.text(20, 74+2*panelHeight+float64(i)*16, left, "small", note)
	}
	return c
}

func (c *canvas) bars(x, y, width, barHeight float64, m measure, rows []backlogRow) {
	const names, values = 84, 60 // room for the words on either side
	c.text(x, y+14, left, "panel", m.title)
	most := greatest(m, rows)
	for i, r := range rows {
		top := y + 26 + float64(i)*barHeight
		middle := top + barHeight/2 + 2
		c.text(x+names-8, middle, right, "", r.System)
		v, ok := m.of(r)
		if !ok {
			c.text(x+names+6, middle, left, "small", "does not apply")
			continue
		}
		length := max(1, v/most*(width-names-values))
		c.bar(x+names, top, length, barHeight-8, colours[r.System])
		c.text(x+names+length+6, middle, left, "small", m.label(v))
	}
	c.line(x+names, y+22, x+names, y+24+float64(len(rows))*barHeight, "axis")
}

func greatest(m measure, rows []backlogRow) float64 {
	most := 0.0
	for _, r := range rows {
		if v, ok := m.of(r); ok {
			most = max(most, v)
		}
	}
	if most == 0 {
		return 1
	}
	return most
}

// growthPlot is a panel of lines for each measure, over the size of the backlog.
func growthPlot(rows []backlogRow) *canvas {
	const width, height, panelWidth = 860, 420, 400
	c := &canvas{width: width, height: height}
	first := rows[0]
	c.text(20, 34, left, "title", fmt.Sprintf("Cost of a job as the backlog grows, at %s/s", thousands(first.Rate)))
	for i, m := range []measure{denialsPerJob, cpuPerJob} {
		c.lines(20+float64(i)*(panelWidth+20), 60, panelWidth, height-110, m, rows)
	}
	c.text(20, c.height-16, left, "small", "wiki: the pattern of asynq's wiki with redis_rate and short polls")
	return c
}

func (c *canvas) lines(x, y, width, height float64, m measure, rows []backlogRow) {
	c.text(x, y+14, left, "panel", m.title)
	x0, x1, y0, y1 := x+50, x+width-80, y+height-50, y+30
	top, step := ticks(greatest(m, rows))
	atY := func(v float64) float64 { return y0 - v/top*(y0-y1) }
	for i := 0; float64(i)*step <= top*1.001; i++ {
		v := float64(i) * step
		c.line(x0, atY(v), x1, atY(v), "grid")
		c.text(x0-8, atY(v)+4, right, "small", short(v))
	}
	sizes := sizesOf(rows)
	span := math.Log(float64(sizes[len(sizes)-1])/float64(sizes[0])) + 1e-9
	atX := func(jobs int) float64 { return x0 + 10 + math.Log(float64(jobs)/float64(sizes[0]))/span*(x1-x0-20) }
	for _, jobs := range sizes {
		c.text(atX(jobs), y0+20, centre, "small", thousands(jobs))
	}
	c.line(x0, y0, x1, y0, "axis")
	c.text((x0+x1)/2, y0+40, centre, "small", "jobs waiting at the start")
	for _, system := range systems {
		c.series(system.name, m, rows, atX, atY)
	}
}

// series joins the points of one system and names it at the last.
func (c *canvas) series(system string, m measure, rows []backlogRow, atX func(int) float64, atY func(float64) float64) {
	var x, y float64
	drawn := false
	for _, r := range rows {
		v, ok := m.of(r)
		if r.System != system || !ok {
			continue
		}
		nextX, nextY := atX(r.Jobs), atY(v)
		if drawn {
			c.stroke(x, y, nextX, nextY, colours[system])
		}
		c.dot(nextX, nextY, colours[system])
		x, y, drawn = nextX, nextY, true
	}
	if drawn {
		c.text(x+10, y+4, left, "", system)
	}
}

func sizesOf(rows []backlogRow) []int {
	var sizes []int
	for _, r := range rows {
		sizes = append(sizes, r.Jobs)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// ticks are round: an axis up to top, with a line at each step.
func ticks(most float64) (top, step float64) {
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, round := range []float64{0.2, 0.5, 1, 2} {
		step = round * power
		if most/step <= 6 {
			break
		}
	}
	return math.Ceil(most/step) * step, step
}
