// Package svg draws the figures of the benchmarks.
package svg

import (
	"fmt"
	"html"
	"os"
	"strings"
)

// A Drawing is an SVG image on white. Places are in pixels, from the left and from the top. The
// zero value is empty and has no size.
type Drawing struct {
	Width, Height float64
	b             strings.Builder
}

// A Point is a place in a Drawing.
type Point struct{ X, Y float64 }

// Attributes of texts and lines.
const (
	Plain  = ``
	Bold   = `font-weight="600"`
	Title  = `font-weight="600" font-size="14"`
	Small  = `font-size="11" fill="#57606a"`
	Grid   = `stroke="#eaeef2"`
	Dashed = `stroke="#24292f" stroke-dasharray="4 3"`
)

// Line draws a line with the given attributes.
func (d *Drawing) Line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&d.b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style)
}

// Dot draws a filled circle of radius r.
func (d *Drawing) Dot(x, y, r float64, color string) {
	fmt.Fprintf(&d.b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, r, color)
}

// Polyline draws lines from each point to the next.
func (d *Drawing) Polyline(color string, points []Point) {
	places := make([]string, len(points))
	for i, p := range points {
		places[i] = fmt.Sprintf("%.1f,%.1f", p.X, p.Y)
	}
	fmt.Fprintf(&d.b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"%s\"/>\n", color, strings.Join(places, " "))
}

// Text draws s at x and y with the given attributes. anchor tells which point of s is at x: its
// start, middle or end.
func (d *Drawing) Text(x, y float64, anchor, style, s string) {
	fmt.Fprintf(&d.b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, style, html.EscapeString(s))
}

// Write writes the drawing to a file. Programs that cannot see it read its title.
func (d *Drawing) Write(file, title string) error {
	head := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" "+
		"font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#24292f\">\n<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		d.Width, d.Height, d.Width, d.Height, html.EscapeString(title))
	return os.WriteFile(file, []byte(head+d.b.String()+"</svg>\n"), 0o600)
}
