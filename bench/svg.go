package main

import (
	"fmt"
	"html"
	"os"
	"strings"
)

// canvas is an SVG picture that is drawn on. Units are pixels.
type canvas struct {
	width, height float64
	body          strings.Builder
}

// The look of all pictures: dark grey on white, whatever the reader's theme.
const svgStyle = `text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-size: 18px; font-weight: 600 } .panel { font-size: 14px; font-weight: 600 }
.small { font-size: 12px; fill: #57606a } .axis { stroke: #8c959f } .grid { stroke: #e6e8eb }`

// colours are told apart by people with any colour vision, and in grey.
var colours = map[string]string{
	"headgate": "#0072b2", "bullmq": "#d55e00", "wiki": "#999999", "wiki-stock": "#cc79a7",
}

// The anchors of a text.
const (
	left   = "start"
	centre = "middle"
	right  = "end"
)

func (c *canvas) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(&c.body, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(text))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&c.body, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

func (c *canvas) bar(x, y, width, height float64, colour string) {
	fmt.Fprintf(&c.body, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s"/>`+"\n", x, y, width, height, colour)
}

func (c *canvas) dot(x, y float64, colour string) {
	fmt.Fprintf(&c.body, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", x, y, colour)
}

// stroke is a line of a series from point to point.
func (c *canvas) stroke(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(&c.body, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2.5"/>`+"\n", x1, y1, x2, y2, colour)
}

// String is the picture as a file.
func (c *canvas) String() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">
<style>%s</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
%s</svg>
`, c.width, c.height, c.width, c.height, svgStyle, c.body.String())
}

func writePlot(file string, c *canvas) error {
	if err := os.WriteFile(file, []byte(c.String()), 0o644); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}
