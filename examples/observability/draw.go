package main

import (
	"fmt"
	"strings"
	"time"
)

// A curve is one of the diagrams that are drawn one below the other.
type curve struct {
	title string
	color string
	value func(second) float64
}

var curves = []curve{
	{"handled, events/s", "#2b7a3d", func(s second) float64 { return s.handled }},
	{"failed runs, to be retried, 1/s", "#c77700", func(s second) float64 { return s.failed }},
	{"backlog, events", "#2a5db0", func(s second) float64 { return s.backlog }},
	{"dead letters, 1/s", "#b3261e", func(s second) float64 { return s.dead }},
}

const (
	width, height = 720, 110 // of one curve
	left, top     = 50, 30
	plot          = height - top - 10
)

// draw returns the curves of a run as SVG.
func draw(seconds []second) string {
	var b strings.Builder
	total := len(curves)*height + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width+left+20, total)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	x := func(at float64) float64 { return left + at/length.Seconds()*width }
	from, until := x(downFrom.Seconds()), x(downUntil.Seconds())
	fmt.Fprintf(&b, `<rect x="%.0f" y="0" width="%.0f" height="%d" fill="#f3d9d7"/><text x="%.0f" y="14">the bank is down</text>`+"\n",
		from, until-from, total-25, from+5)
	for i, c := range curves {
		c.draw(&b, seconds, x, i*height+top)
	}
	for at := time.Duration(0); at <= length; at += 15 * time.Second {
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%v s</text>`+"\n", x(at.Seconds()), total-10, at.Seconds())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c curve) draw(b *strings.Builder, seconds []second, x func(float64) float64, y int) {
	most := 1.0
	for _, s := range seconds {
		most = max(most, c.value(s))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, y-5, c.title)
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#999"/>`+"\n", left, y+plot, left+width, y+plot)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%.0f</text><text x="%d" y="%d" text-anchor="end">0</text>`+"\n",
		left-5, y+10, most, left-5, y+plot)
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, c.color)
	for i, s := range seconds {
		fmt.Fprintf(b, "%.1f,%.1f ", x(float64(i+1)), float64(y)+plot*(1-c.value(s)/most))
	}
	b.WriteString("\"/>\n")
}
