package main

import (
	"fmt"
	"html"
	"strings"
	"time"
	"unicode/utf8"
)

// The picture's measures, in pixels.
const (
	fontSize   = 14
	cell       = 8.4 // of a character, as monospaced fonts have it at this size
	lineHeight = 20
	margin     = 16
	width      = columns*cell + 2*margin
	height     = rows*lineHeight + 2*margin
	pitch      = height + 20 // from frame to frame of the film
)

// hold is for how long the last frame is to be read, before all begins again.
const hold = 6 * time.Second

// The look: a terminal with a border, which stands out from a page that is light
// as from one that is dark.
const style = `.screen{fill:#1b1f24;stroke:#6e7781}
text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}
.film{transform:translateY(%dpx)}
@media (prefers-reduced-motion:no-preference){.film{animation:play %.2fs step-end infinite}}
@keyframes play{%s}`

// picture draws the frames below each other on a film, and moves the film behind
// a window. Without an animation the window shows the last.
func picture(frames []frame) string {
	last := len(frames) - 1
	length := frames[last].at + hold
	var moves, film strings.Builder
	drawn := map[string]int{} // lines, and where each was drawn first
	for i, f := range frames {
		fmt.Fprintf(&moves, "%.3f%%{transform:translateY(%dpx)}", 100*float64(f.at)/float64(length), -i*pitch)
		for row, line := range f.lines {
			draw(&film, drawn, line, i*pitch+margin+row*lineHeight+fontSize)
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" aria-label="A terminal in which %s runs">
<style>%s</style>
<rect class="screen" x=".5" y=".5" width="%.0f" height="%d" rx="8"/>
<svg width="%.0f" height="%d"><g class="film">
%s</g></svg>
</svg>
`, width, height, html.EscapeString(strings.TrimPrefix(frames[0].lines[0], "$ ")),
		fmt.Sprintf(style, fontSize, -last*pitch, length.Seconds(), moves.String()),
		width-1, height-1, width, height, film.String())
}

// draw draws a line, or refers to one that is the same. Its length is fixed, so
// that columns are columns in whatever font the reader has.
func draw(film *strings.Builder, drawn map[string]int, line string, y int) {
	if line == "" {
		return
	}
	n, ok := drawn[line]
	if !ok {
		n = len(drawn)
		drawn[line] = n
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		fmt.Fprintf(film, `<defs><text id="l%d" x="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text></defs>`+"\n",
			n, margin+float64(indent)*cell, float64(utf8.RuneCountInString(text))*cell, html.EscapeString(text))
	}
	fmt.Fprintf(film, `<use href="#l%d" y="%d"/>`+"\n", n, y)
}
