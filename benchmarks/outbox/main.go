// Command outbox measures how fast a batch of committed events gets from Postgres to Redis:
// by the relay of package outbox, and by the forwarder of Watermill's SQL Pub/Sub.
//
//	go run ./outbox
//	go run ./outbox -events 50000 -runs 5
//
// It starts both servers for itself, with their default durability but for fsync. In each run
// every target gets the same number of rows, with the same payloads and keys, in tables of
// its own. The clock starts with the relay, and stops when Redis has all events. The command
// prints the rates, and the ratio of each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"time"
)

// A target moves events from Postgres to Redis.
type target interface {
	// fill commits n events, in transactions of ten events.
	fill(ctx context.Context, n int, payload []byte) error

	// move runs the relay until ctx ends.
	move(ctx context.Context) error

	// moved returns the number of events in Redis.
	moved(ctx context.Context) (int64, error)

	close(ctx context.Context) error
}

type opener func(ctx context.Context, s *servers, run int) (target, error)

// The targets: the first one is compared with the others.
var targets = []struct {
	name string
	open opener
}{
	{"eventbus outbox", openOutbox},
	{"watermill forwarder, batches of 100 (its default)", openWatermill(100)},
	{"watermill forwarder, batches of 1000", openWatermill(1000)},
}

func main() {
	events := flag.Int("events", 20_000, "the `number` of events of a run")
	runs := flag.Int("runs", 3, "the `number` of runs")
	size := flag.Int("payload", 256, "the `bytes` of a payload")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelWarn)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if err := bench(ctx, *events, *runs, *size); err != nil {
		log.Fatal(err)
	}
}

func bench(ctx context.Context, events, runs, size int) (err error) {
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	rates := make([][]float64, len(targets))
	for run := range runs {
		for i, t := range targets {
			rate, err := measure(ctx, s, t.open, run*len(targets)+i, events, size)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			rates[i] = append(rates[i], rate)
			fmt.Fprintf(os.Stdout, "run %d  %-50s %8.0f events/s  ratio %.1f\n", run+1, t.name, rate, rates[0][run]/rate)
		}
	}
	fmt.Fprintf(os.Stdout, "\nmedians of %d runs, %d events of %d bytes\n", runs, events, size)
	for i, t := range targets {
		fmt.Fprintf(os.Stdout, "%-50s %8.0f events/s  ratio %.1f\n", t.name, median(rates[i]), median(ratios(rates[0], rates[i])))
	}
	return nil
}

func measure(ctx context.Context, s *servers, open opener, run, events, size int) (rate float64, err error) {
	t, err := open(ctx, s, run)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	if err := t.fill(ctx, events, slices.Repeat([]byte("x"), size)); err != nil {
		return 0, err
	}
	moving, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- t.move(moving) }()
	var took time.Duration
	for n := int64(0); n < int64(events); {
		if n, err = t.moved(ctx); err != nil {
			break
		}
		took = time.Since(began)
		select {
		case <-time.After(2 * time.Millisecond):
		case err := <-ended:
			cancel()
			return 0, errors.Join(err, errors.New("the relay has ended"))
		}
	}
	cancel()
	return float64(events) / took.Seconds(), errors.Join(err, <-ended)
}

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return r
}

func median(fs []float64) float64 {
	fs = slices.Sorted(slices.Values(fs))
	return (fs[(len(fs)-1)/2] + fs[len(fs)/2]) / 2
}
