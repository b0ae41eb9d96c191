package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

func writeJSON(w io.Writer, v any) error {
	to := json.NewEncoder(w)
	to.SetIndent("", "  ")
	return to.Encode(v)
}

// writeTable writes a heading and rows as a table. Without rows it writes nothing.
func writeTable[R any](to io.Writer, heading string, rows []R, write func(io.Writer, R)) error {
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(printable{to}, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	for _, r := range rows {
		write(w, r)
	}
	return w.Flush()
}

// A printable passes on text for people. It replaces control characters, because a terminal would obey those of an event.
type printable struct{ to io.Writer }

func (w printable) Write(p []byte) (int, error) {
	text := bytes.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, p)
	if _, err := w.to.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writePartitions writes the cell with the number of partitions, if the table has that column.
func writePartitions(w io.Writer, divided bool, n int) {
	switch {
	case divided && n > 0:
		fmt.Fprintf(w, "\t%d", n)
	case divided:
		fmt.Fprint(w, "\t-")
	}
}

// age returns how much time has passed from t to now, as text. It returns "-" if t is zero.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(now.Sub(t), 0) // the broker's clock may be ahead
	if d > 48*time.Hour {
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
	return d.Truncate(time.Second).String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short returns the beginning of a text that is too long for a table.
func short(s string) string {
	const most = 100
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
