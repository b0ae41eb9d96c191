package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A report is the content of docs/CONFORMANCE.md.
type report struct {
	backends []string                     // the backends of order that the report has
	tests    map[string]map[string]string // by "ID name" and backend: pass, weaker, fail, not claimed, missing
	why      map[string]string            // by "ID name on backend": the reason of a weaker outcome
}

var weakerLine = regexp.MustCompile(`^- (\S+ \S+ on \S+) is weaker: (.*)$`)

func read(text string) (*report, error) {
	r := &report{tests: map[string]map[string]string{}, why: map[string]string{}}
	var columns, all []string // backends of the current table, and of all tables
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := weakerLine.FindStringSubmatch(line); m != nil {
			r.why[m[1]] = m[2]
		}
		cells := cellsOf(line)
		switch {
		case len(cells) < 3 || strings.HasPrefix(cells[0], "--"):
		case cells[0] == "test":
			columns = cells[2:]
			all = append(all, columns...)
		case len(cells) != len(columns)+2:
			return nil, fmt.Errorf("a line of %d cells, where there are %d backends: %s", len(cells), len(columns), line)
		default:
			if r.tests[cells[0]] == nil {
				r.tests[cells[0]] = map[string]string{}
			}
			for i, backend := range columns {
				r.tests[cells[0]][backend] = cells[i+2]
			}
		}
	}
	if len(r.tests) == 0 {
		return nil, errors.New("it shows no tests")
	}
	for _, backend := range order {
		if slices.Contains(all, backend) {
			r.backends = append(r.backends, backend)
		}
	}
	return r, nil
}

// cellsOf returns the cells of a table's line.
func cellsOf(line string) (cells []string) {
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	line = strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00")
	for _, c := range strings.Split(line, "|") {
		cells = append(cells, strings.ReplaceAll(strings.TrimSpace(c), "\x00", "|"))
	}
	return cells
}
