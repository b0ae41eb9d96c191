package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A curve shows how the cost of the bus changes while one quantity grows, such as the
// number of handlers.
type curve struct {
	title string
	what  string // the quantity that grows
	op    string
	// at holds the values of the growing quantity. The quantity is the payload size if
	// payload is true, or else the number n of the cell.
	at      []int
	payload bool
	n       int // n of each cell, if the payload grows
	size    int // payload size of each cell; 0: the size of the plan
}

// curves are the curves that the flag -curves measures. The payload sizes end at the
// largest size that the bus accepts.
var curves = []curve{
	{title: "Consuming, by handlers", what: "handlers", op: opConsume, at: []int{1, 2, 4, 8, 16, 32, 64, 128, 256}},
	{title: "Consuming with 16 handlers, by payload", what: "bytes", op: opConsume, payload: true, n: 16, at: payloads},
	{title: "Publishing from 32 goroutines, by payload", what: "bytes", op: opPublish, payload: true, n: 32, at: payloads},
	{title: "Publishing and consuming, by topics on one bus", what: "topics", op: opTopics, at: []int{1, 10, 100, 1000}},
	{title: "Consuming with 16 handlers, by backlog", what: "events", op: opBacklog, at: []int{10_000, 100_000, 1_000_000}},
	{title: "Memory while a handler waits", what: "MiB of backlog, in events of 256 KiB", op: opMemory, at: []int{960}, size: 256 << 10},
}

var payloads = []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 960 << 10}

func (c curve) cell(at int) cell {
	if c.payload {
		return cell{op: c.op, n: c.n, payload: at}
	}
	return cell{op: c.op, n: at, payload: c.size}
}

func (c curve) cells() (cells []cell) {
	for _, at := range c.at {
		cells = append(cells, c.cell(at))
	}
	return cells
}

// curveCells returns the cells of all curves as the flag -cells takes them.
func curveCells() string {
	var cells []string
	for _, c := range curves {
		for _, c := range c.cells() {
			cells = append(cells, c.String())
		}
	}
	return strings.Join(cells, ",")
}

// curveTargets returns the names of all targets except the peers, separated by commas.
func curveTargets() string {
	var names []string
	for _, t := range targets {
		if t.kind != peer {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ",")
}

// writeCurves writes a table for each curve that was measured.
func (r report) writeCurves(w io.Writer) {
	for _, c := range curves {
		cells := slices.DeleteFunc(c.cells(), func(c cell) bool { return !slices.Contains(r.cells(), c) })
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(w, "**%s**\n\n", c.title)
		switch c.op {
		case opMemory:
			r.memoryTable(w, c, cells)
		case opTopics:
			r.topicsTable(w, c, cells)
		default:
			r.curveTable(w, c, cells)
		}
		fmt.Fprintln(w)
	}
	r.writeConditions(w)
}

// ourTargets returns the targets of this project that have results of the cell.
func (r report) ourTargets(c cell) (ts []target) {
	for _, t := range targets {
		if t.kind == ours && len(r.at(t.name, c)) > 0 {
			ts = append(ts, t)
		}
	}
	return ts
}

// curveTable writes one row for each cell. A row has, for each target of this project, the
// median ratio to its raw client, and the median events per second.
func (r report) curveTable(w io.Writer, curve curve, cells []cell) {
	ts := r.ourTargets(cells[0])
	head, line := "| "+curve.what+" |", "|--:|"
	for _, t := range ts {
		head += fmt.Sprintf(" %s to %s |", t.name, t.base)
		line += "--:|"
	}
	fmt.Fprintf(w, "%s\n%s\n", head, line)
	for _, c := range cells {
		fmt.Fprintf(w, "| %s |", curve.value(c))
		for _, t := range ts {
			ratio, _ := r.ratio(t.name, t.base, c, rate)
			fmt.Fprintf(w, " **%s** (%s/s) |", short(ratio.median), short(r.median(t.name, c, rate)))
		}
		fmt.Fprintln(w)
	}
}

// value returns the growing quantity of a cell as text.
func (c curve) value(cell cell) string {
	if c.payload {
		return sizeText(cell.payload)
	}
	return grouped(cell.n)
}

func (r report) topicsTable(w io.Writer, _ curve, cells []cell) {
	fmt.Fprintln(w, "| topics | target | events/s | ratio to the raw client | connections | goroutines | of these for each topic |")
	fmt.Fprintln(w, "|--:|---|--:|--:|--:|--:|--:|")
	for _, c := range cells {
		for _, t := range targets {
			if len(r.at(t.name, c)) == 0 {
				continue
			}
			ratio := "–"
			if s, ok := r.ratio(t.name, t.base, c, rate); ok {
				ratio = fmt.Sprintf("**%s**", short(s.median))
			}
			goroutines := r.median(t.name, c, func(c cost) float64 { return float64(c.Goroutines) })
			fmt.Fprintf(w, "| %s | %s | %s | %s | %.0f | %.0f | %.1f |\n", grouped(c.n), t.name, short(r.median(t.name, c, rate)), ratio,
				r.median(t.name, c, func(c cost) float64 { return float64(c.Connections) }), goroutines, goroutines/float64(c.n))
		}
	}
}

func (r report) memoryTable(w io.Writer, _ curve, cells []cell) {
	fmt.Fprintln(w, "| MiB of backlog | target | heap, live | heap, most with what was not collected yet |")
	fmt.Fprintln(w, "|--:|---|--:|--:|")
	for _, c := range cells {
		for _, t := range targets {
			if len(r.at(t.name, c)) == 0 {
				continue
			}
			fmt.Fprintf(w, "| %s | %s | %.0f MiB | %.0f MiB |\n", grouped(c.n), t.name,
				r.median(t.name, c, func(c cost) float64 { return float64(c.LiveBytes) / (1 << 20) }),
				r.median(t.name, c, func(c cost) float64 { return float64(c.PeakBytes) / (1 << 20) }))
		}
	}
}

// grouped returns n with commas between groups of three digits, such as 1,000,000.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
