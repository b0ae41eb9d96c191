package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Progress shows how many events an [Account] has published and finished so far. On a terminal it redraws one line ten
// times a second, elsewhere it writes a line every second. Its goroutine runs until Stop.
type Progress struct {
	out      io.Writer
	terminal bool
	account  *Account
	done     chan struct{}
	ended    sync.WaitGroup
}

// StartProgress starts a Progress that shows the counts of a on out.
func StartProgress(out io.Writer, a *Account) *Progress {
	return newProgress(out, isTerminal(out), a)
}

func newProgress(out io.Writer, terminal bool, a *Account) *Progress {
	p := &Progress{out: out, terminal: terminal, account: a, done: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// Stop ends the goroutine, waits for it, and clears the line on a terminal.
func (p *Progress) Stop() {
	close(p.done)
	p.ended.Wait()
}

const clearLine = "\r\x1b[K"

func (p *Progress) run() {
	every, before, after, last := time.Second, "", "\n", ""
	if p.terminal {
		every, before, after, last = 100*time.Millisecond, clearLine, "", clearLine
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprint(p.out, before+p.line()+after)
		case <-p.done:
			fmt.Fprint(p.out, last)
			return
		}
	}
}

func (p *Progress) line() string {
	var b strings.Builder
	for i, r := range p.account.Rows() {
		if i == 0 {
			fmt.Fprintf(&b, "published %d", r.Published)
		}
		fmt.Fprintf(&b, "  %s %d", r.Group, r.Handled+r.DeadLettered)
	}
	return b.String()
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
