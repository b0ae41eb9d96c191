package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func needBrokers(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath(redisBinary)
	if err == nil {
		_, err = natsPath()
	}
	if err == nil {
		return
	}
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// TestRun checks that each target passes each cell: every event is handled one time and
// settled. It also checks that the results can be written in every form.
func TestRun(t *testing.T) {
	needBrokers(t)
	file := filepath.Join(t.TempDir(), "results.json")
	var table, progress strings.Builder
	args := []string{"-quick", "-cells", defaultCells, "-runs", "2", "-n", "1000", "-json", file} // twice, because a trial of a peer may fail
	if err := run(t.Context(), args, &table, &progress); err != nil {
		t.Fatal(err)
	}
	cells, err := parseCells(defaultCells)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range targets {
		want := 0
		for _, c := range cells {
			if of.does(c) {
				want++
			}
		}
		if got := strings.Count(table.String(), "` | "+of.name+" "); got != want && (of.kind == ours || got == 0) {
			t.Errorf("the table has %d rows of %s, want %d:\n%s%s", got, of.name, want, table.String(), progress.String())
		}
	}
	for _, g := range goals {
		if !strings.Contains(table.String(), "| "+g.what) {
			t.Errorf("the table says nothing of %s:\n%s", g.what, progress.String())
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Goals   []struct{ What string }
		Results []struct {
			Target, Cell string
			Events       int
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if got, want := len(r.Goals), len(goals); got != want {
		t.Errorf("%d goals in the file, want %d", got, want)
	}
	written(t, file, "benchmarks")
}

// TestCurves checks that each curve can be measured and drawn.
func TestCurves(t *testing.T) {
	needBrokers(t)
	file := filepath.Join(t.TempDir(), "curves.json")
	var table, progress strings.Builder
	cells := "con/1,con/16@64,pub/32@64,topics/1,topics/10,backlog/10000,memory/8@256K"
	was := curves
	t.Cleanup(func() { curves = was })
	curves = nil
	for _, c := range was {
		c.at = map[string][]int{opTopics: {1, 10}, opMemory: {8}, opBacklog: {10_000}}[c.op]
		if c.at == nil {
			c.at = []int{1}
		}
		if c.payload {
			c.at = []int{64}
		}
		curves = append(curves, c)
	}
	args := []string{"-curves", "-cells", cells, "-runs", "1", "-n", "1000", "-json", file}
	if err := run(t.Context(), args, &table, &progress); err != nil {
		t.Fatal(err)
	}
	for _, c := range curves {
		if !strings.Contains(table.String(), c.title) {
			t.Errorf("the table has no %s:\n%s%s", c.title, table.String(), progress.String())
		}
	}
	written(t, file, "curves", "-curves")
}

// written checks that results can be drawn and put into a document.
func written(t *testing.T, file, name string, more ...string) {
	t.Helper()
	svg, doc := filepath.Join(t.TempDir(), "a.svg"), filepath.Join(t.TempDir(), "a.md")
	before := "a\n<!-- " + name + " -->\nold\n<!-- end of " + name + " -->\nz\n"
	if err := os.WriteFile(doc, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), append(more, "-from", file, "-svg", svg, "-doc", doc), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(drawn), "eventbus-nats") {
		t.Errorf("drawn: %v\n%s", err, drawn)
	}
	text, err := os.ReadFile(doc)
	if err != nil || strings.Contains(string(text), "old") || !strings.Contains(string(text), "interleaved runs") || !strings.HasSuffix(string(text), "<!-- end of "+name+" -->\nz\n") {
		t.Errorf("document: %v\n%s", err, text)
	}
}

// TestJudge checks that a goal is judged by the median of the ratios of all runs.
func TestJudge(t *testing.T) {
	kept := goals
	t.Cleanup(func() { goals = kept })
	goals = []goal{{"NATS publish, 1 goroutine", "eventbus-nats", "pub/1", byRate, 0.8, 1, []peerGoal{{"wm-nats", 1}}, 18}}
	of := func(target string, run int, perSecond float64) result {
		return result{Target: target, Cell: cell{op: opPublish, n: 1}, Run: run, cost: cost{PerSecond: perSecond, Allocs: 18}}
	}
	r := report{Results: []result{
		of("raw-nats", 1, 100), of("raw-nats", 2, 1000), of("raw-nats", 3, 10),
		of("wm-nats", 1, 100), of("wm-nats", 2, 100), of("wm-nats", 3, 100),
		of("eventbus-nats", 1, 90), of("eventbus-nats", 2, 790), of("eventbus-nats", 3, 20),
	}}
	found := r.judge()
	if len(found) != 1 {
		t.Fatalf("%d findings, want 1", len(found))
	}
	f := found[0]
	if f.Ratio != 0.9 || f.AimMet || len(f.Missed) != 1 || f.Missed[0] != "0.9x wm-nats" {
		t.Errorf("%+v: want 0.9, the median of 0.9, 0.79 and 2; and 0.9 of wm-nats is not enough", f)
	}
}

func TestRefusals(t *testing.T) {
	for _, args := range [][]string{
		{"-targets", "kafka"}, {"-cells", "con"}, {"-cells", "pub/0"}, {"-cells", "con/1@x"}, {"-runs", "0"}, {"-n", "1"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
