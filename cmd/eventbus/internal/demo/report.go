package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
)

// A Report holds the counts of an [Account] at the end of a run, with sums over all groups.
type Report struct {
	Input      string  `json:"input"`
	Published  int     `json:"published"`
	Seconds    float64 `json:"seconds"`
	Groups     []Row   `json:"groups"`
	Lost       int     `json:"lost"`
	OutOfOrder int     `json:"out_of_order"`
	Duplicated int     `json:"duplicated"`
	Unknown    int     `json:"unknown"`
}

// Report returns the counts of a and their sums, for a run that took so long on the input of this name.
func (a *Account) Report(input string, took time.Duration) Report {
	r := Report{Input: input, Seconds: took.Seconds(), Groups: a.Rows()}
	for _, row := range r.Groups {
		r.Published = row.Published
		r.Lost += row.Lost
		r.OutOfOrder += row.OutOfOrder
		r.Duplicated += row.Duplicated
		r.Unknown += row.Unknown
	}
	return r
}

// Err returns an error if the bus broke a promise. Duplicates break none, because the bus promises to deliver at least
// once.
func (r Report) Err() error {
	var wrong []string
	for _, w := range []struct {
		n    int
		what string
	}{{r.Lost, "lost"}, {r.OutOfOrder, "out of order"}, {r.Unknown, "never published"}} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the count is wrong: %s", strings.Join(wrong, ", "))
}

// WriteText writes the report as a table.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s in %.1f s\n\n", plural.Of(r.Published, "event"), r.Input, r.Seconds)
	const form = "%-10s%11v%11v%11v%15v%12v%8v%14v\n"
	fmt.Fprintf(&b, form, "group", "published", "handled", "retried", "dead-lettered", "duplicated", "lost", "out of order")
	for _, g := range r.Groups {
		fmt.Fprintf(&b, form, g.Group, g.Published, g.Handled, g.Retried, g.DeadLettered, g.Duplicated, g.Lost, g.OutOfOrder)
	}
	fmt.Fprintf(&b, "\nlost %d, out of order %d, duplicated %d\n", r.Lost, r.OutOfOrder, r.Duplicated)
	_, err := io.WriteString(w, b.String())
	return err
}
