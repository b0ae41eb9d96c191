// Command benchmarks measures the bus, raw clients of the brokers, and peers, one after
// another in one run. README.md describes the method.
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
	r, failed := found(ctx, p, stderr)
	if len(r.Results) == 0 {
		return failed
	}
	return errors.Join(failed, r.publish(p, stdout))
}

// found returns the results of the suite. It runs the suite, or reads the file that p.from
// names.
func found(ctx context.Context, p plan, progress io.Writer) (report, error) {
	if p.from != "" {
		return readReport(p.from)
	}
	slog.SetLogLoggerLevel(slog.LevelError) // hides the default observer's warning about a server without persistence
	s := suite{plan: p, progress: progress, profile: newProfile(p.cpuProfile, p.allocProfile)}
	failed := errors.Join(s.run(ctx), s.profile.failed)
	return newReport(p, s.results, s.took), failed
}

// goalsFile holds the table of goals, which is for the developers of the bus.
const goalsFile = "GOALS.md"

// publish writes a report to the files that the plan names. It writes to stdout if the plan
// names neither a document nor a drawing.
func (r report) publish(p plan, stdout io.Writer) error {
	write, draw, name := r.markdown, r.drawRatios, "benchmarks"
	if p.curves {
		write, draw, name = r.writeCurves, r.drawCurves, "curves"
	}
	var errs []error
	if p.doc != "" {
		if p.curves {
			errs = append(errs, writeDocument(p.doc, name, write))
		} else {
			errs = append(errs, writeDocument(p.doc, name, r.tables), writeDocument(goalsFile, "goals", r.writeGoals))
		}
	}
	if p.svg != "" {
		errs = append(errs, draw(p.svg))
	}
	if p.doc == "" && p.svg == "" {
		write(stdout)
	}
	if p.jsonFile != "" {
		errs = append(errs, r.writeJSON(p.jsonFile))
	}
	return errors.Join(errs...)
}
