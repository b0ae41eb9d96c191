package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func needBrokers(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	if err == nil {
		if _, built := os.Stat("../../.bin/nats-server"); built != nil {
			_, err = exec.LookPath("nats-server")
		}
	}
	switch {
	case err == nil:
	case os.Getenv("EVENTBUS_REQUIRE_BROKERS") != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// A short run on both brokers goes from one handler to the bound and back, and is drawn.
func TestRun(t *testing.T) {
	needBrokers(t)
	file := filepath.Join(t.TempDir(), "a.svg")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out strings.Builder
	if err := run(ctx, []string{"-events", "3000", "-most", "4", "-faster", "100", "-svg", file}, &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "4 handlers after") != 2 {
		t.Errorf("printed %q, want a line for each broker", text)
	}
	drawn, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(string(drawn))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 4 {
		t.Errorf("%d lines are drawn, want lag and handlers of two brokers", lines)
	}
	for _, word := range []string{"Redis", "NATS", "3,000", "1 to 4 handlers", "divided by 100"} {
		if !strings.Contains(string(drawn), word) {
			t.Errorf("the drawing does not say %q", word)
		}
	}
}

// Every course but the wanted one is refused.
func TestCheck(t *testing.T) {
	p := plan{events: 10, most: 3}
	course := func(missing int, handlers ...int) result {
		r := result{missing: missing}
		for _, n := range handlers {
			r.steps = append(r.steps, step{handlers: n})
		}
		return r
	}
	if err := course(0, 2, 3, 2, 1).check(p); err != nil {
		t.Error(err)
	}
	for name, r := range map[string]result{
		"an event is missing": course(1, 2, 3, 2, 1),
		"it never grows":      course(0),
		"it stops below":      course(0, 2, 1),
		"it stays":            course(0, 2, 3),
		"it ends above 1":     course(0, 2, 3, 2),
		"it flaps":            course(0, 2, 1, 2, 3, 2, 1),
		"it grows twice":      course(0, 2, 3, 2, 3, 2, 1),
		"it jumps":            course(0, 3, 2, 1),
		"it passes the bound": course(0, 2, 3, 4, 3, 2, 1),
	} {
		if r.check(p) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, args := range [][]string{{"-brokers", "kafka"}, {"-events", "0"}, {"-most", "1"}, {"-run", "0s"}, {"-faster", "0"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
