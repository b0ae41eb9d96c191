// Command scaling shows how package scale changes the number of handlers while a subscription
// works off a backlog:
//
//	go run ./scaling
//	go run ./scaling -brokers redis -events 10000 -svg scaling.svg
//
// It starts a Redis and a NATS for itself. On each of them it publishes the events. Then a
// subscription begins with one handler, whose runs wait, and an Autoscaler changes the number. The
// command fails if the number does not grow to the bound step by step and then shrink to one,
// or if an event is not handled.
//
// The times of the Autoscaler are its defaults, divided by -faster, so that a run takes a minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"
)

// A plan says how to measure.
type plan struct {
	events int           // of the backlog
	most   int           // the greatest number of handlers
	run    time.Duration // how long a handler takes
	faster int           // divides the times of the Autoscaler
}

// The defaults of package scale, which its documentation states.
const (
	defaultPoll       = 5 * time.Second
	defaultHysteresis = 10 * time.Second
	defaultCooldown   = 30 * time.Second
)

func (p plan) poll() time.Duration       { return defaultPoll / time.Duration(p.faster) }
func (p plan) hysteresis() time.Duration { return defaultHysteresis / time.Duration(p.faster) }
func (p plan) cooldown() time.Duration   { return defaultCooldown / time.Duration(p.faster) }

func main() {
	slog.SetLogLoggerLevel(slog.LevelError)                                  // hides the warning about a Redis without persistence
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) //nolint:forbidigo // the program begins here
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	brokers := flags.String("brokers", "redis,nats", "a comma-separated `list` of redis and nats")
	events := flags.Int("events", 50_000, "the `number` of events of the backlog")
	most := flags.Int("most", 16, "the greatest `number` of handlers, at least 2")
	takes := flags.Duration("run", 5*time.Millisecond, "the `time` that a handler takes")
	faster := flags.Int("faster", 20, "the `divisor` of the Autoscaler's times")
	file := flags.String("svg", "", "the `file` for a drawing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := plan{events: *events, most: *most, run: *takes, faster: *faster}
	if p.events < 1 || p.most < 2 || p.run <= 0 || p.faster < 1 {
		return fmt.Errorf("-events %d -most %d -run %v -faster %d: one of them is too small", p.events, p.most, p.run, p.faster)
	}
	var results []result
	var failed error
	for name := range strings.SplitSeq(*brokers, ",") {
		r, err := measure(ctx, name, p)
		if err == nil {
			fmt.Fprintln(out, r)
			err = r.check(p)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		results = append(results, r)
	}
	if failed != nil || *file == "" {
		return failed
	}
	return draw(*file, p, results)
}
