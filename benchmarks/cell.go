package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A cell is one measurement: an operation, and a number that tells how much of it.
//
//	pub/c      Publish of one event, from c goroutines
//	batch/c    Publish of 100 events in one call, from c goroutines
//	con/c      at most c handlers run at the same time; the events are published before
//	e2e/c      at most c handlers run at the same time, while 32 goroutines publish
//	lat/r      Publish of r events a second, even if earlier calls still wait; 16 handlers
//	topics/n   n topics on one bus, with a handler each; 8 goroutines publish batches of 100
//	backlog/n  con/16 with exactly n events
//	memory/m   size of the heap while a handler blocks and a backlog of m MiB waits
//
// @ and a size at the end replace the payload size of the plan: con/16@16K.
type cell struct {
	op      string
	n       int
	payload int // payload size in bytes; 0: the size of the plan
}

const (
	opPublish = "pub"
	opBatch   = "batch"
	opConsume = "con"
	opBoth    = "e2e"
	opLatency = "lat"
	opTopics  = "topics"
	opBacklog = "backlog"
	opMemory  = "memory"
)

var ops = []string{opPublish, opBatch, opConsume, opBoth, opLatency, opTopics, opBacklog, opMemory}

func (c cell) String() string {
	s := fmt.Sprintf("%s/%d", c.op, c.n)
	if c.payload > 0 {
		s += "@" + sizeText(c.payload)
	}
	return s
}

// MarshalText returns the cell as the flag -cells takes it, such as con/16@16K.
func (c cell) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the text of a cell in the form of the command line.
func (c *cell) UnmarshalText(text []byte) (err error) {
	*c, err = parseCell(string(text))
	return err
}

func parseCells(s string) ([]cell, error) {
	var cells []cell
	for text := range strings.SplitSeq(s, ",") {
		c, err := parseCell(text)
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	return cells, nil
}

func parseCell(text string) (c cell, err error) {
	rest, size, sized := strings.Cut(text, "@")
	op, number, _ := strings.Cut(rest, "/")
	c.op = op
	c.n, err = strconv.Atoi(number)
	if err == nil && sized {
		c.payload, err = parseSize(size)
	}
	if err != nil || c.n < 1 || !slices.Contains(ops, op) || sized && c.payload < leastPayload {
		return c, fmt.Errorf("no cell %q; they are such as %s", text, defaultCells)
	}
	return c, nil
}

func parseSize(s string) (int, error) {
	digits, thousands := strings.CutSuffix(s, "K")
	n, err := strconv.Atoi(digits)
	if thousands {
		n <<= 10
	}
	return n, err
}

func sizeText(n int) string {
	if n >= 1<<10 && n%(1<<10) == 0 {
		return strconv.Itoa(n>>10) + "K"
	}
	return strconv.Itoa(n)
}
