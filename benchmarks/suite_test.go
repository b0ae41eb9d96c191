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

// Each target passes each cell, with every event handled once and settled.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath(redisBinary); err != nil {
		if os.Getenv("EVENTBUS_REQUIRE_BROKERS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "results.json")
	var table strings.Builder
	args := []string{"-runs", "1", "-n", "1000", "-json", file}
	if err := run(t.Context(), args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	cells := strings.Split(defaultCells, ",")
	for _, want := range targets {
		if got := strings.Count(table.String(), "| "+want.name); got != len(cells) {
			t.Errorf("the table has %d rows of %s, want %d:\n%s", got, want.name, len(cells), table.String())
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Results []struct {
			Target, Cell string
			Events       int
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if got, want := len(r.Results), len(cells)*len(targets); got != want {
		t.Errorf("%d results, want %d", got, want)
	}
}

func TestRefusals(t *testing.T) {
	for _, args := range [][]string{
		{"-targets", "kafka"}, {"-cells", "con"}, {"-cells", "pub/0"}, {"-runs", "0"}, {"-n", "1"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
