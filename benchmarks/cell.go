package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A cell is one measurement: an operation at a concurrency.
//
//	pub    Publish of one event, from c goroutines
//	batch  Publish of 100 events in one call, from c goroutines
//	con    up to c handlers at once; the events are there before
//	e2e    the same, while 32 goroutines publish
type cell struct {
	op          string
	concurrency int
}

const (
	opPublish = "pub"
	opBatch   = "batch"
	opConsume = "con"
	opBoth    = "e2e"
)

func (c cell) String() string { return fmt.Sprintf("%s/%d", c.op, c.concurrency) }

// MarshalText writes a cell as it is on the command line.
func (c cell) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func parseCells(s string) ([]cell, error) {
	var cells []cell
	for text := range strings.SplitSeq(s, ",") {
		op, number, _ := strings.Cut(text, "/")
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || !slices.Contains([]string{opPublish, opBatch, opConsume, opBoth}, op) {
			return nil, fmt.Errorf("no cell %q; they are such as %s", text, defaultCells)
		}
		cells = append(cells, cell{op, n})
	}
	return cells, nil
}
