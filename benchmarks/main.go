// Command benchmarks measures the bus, raw ceilings and peers side by side, in
// one run. README.md says how, and what makes it fair.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM) //nolint:forbidigo // the program begins here
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parsePlan(args, stderr)
	if err != nil {
		return err
	}
	if p.list {
		for _, t := range targets {
			fmt.Fprintf(stdout, "%-14s %-8s %s\n", t.name, t.kind, t.note)
		}
		return nil
	}
	slog.SetLogLoggerLevel(slog.LevelError) // the bus has its default observer, which warns of a server that keeps nothing
	prof, err := startProfile(p.cpuProfile, p.allocProfile)
	if err != nil {
		return err
	}
	s := suite{plan: p, progress: stderr}
	failed := s.run(ctx)
	if err := prof.stop(); err != nil {
		return err
	}
	r := newReport(p, s.results, s.took)
	r.markdown(stdout)
	if p.jsonFile != "" {
		if err := r.writeJSON(p.jsonFile); err != nil {
			return err
		}
	}
	return failed
}
