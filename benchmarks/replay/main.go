// Command replay measures how fast a group gets kept events again, from a time on, beside a plain
// consume of as many events:
//
//	go run ./replay
//	go run ./replay -brokers redis -events 100000 -runs 3
//
// It starts a Redis and a NATS for itself. Each run publishes the events to a topic without settings, and a
// group consumes them. Then it publishes a tenth of the events, and later all of them, to a topic with
// Keep. The group settles them, is reset to the time between both parts, and consumes the second
// part again. The command fails if the group gets another event, or one twice.
//
// For Redis it prints the slowest command of each phase, by the slow log of the server, of the best run. The log
// has the time on the clock, so a server that has lost its core in a command looks slow. The XADD of single events
// shows how long that takes on this machine. The command fails if the reset or the replay has a command that took
// longer, and longer than -slowest.
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
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A plan says how to measure.
type plan struct {
	events, runs, payload, handlers int
	slowest                         time.Duration
}

func main() {
	var p plan
	brokers := flag.String("brokers", "redis,nats", "a comma-separated `list` of redis, nats and mem")
	flag.IntVar(&p.events, "events", 1_000_000, "the `number` of events of a run")
	flag.IntVar(&p.runs, "runs", 3, "the `number` of runs")
	flag.IntVar(&p.payload, "payload", 256, "the `bytes` of a payload, 8 at least")
	flag.IntVar(&p.handlers, "handlers", 16, "the `number` of handlers")
	flag.DurationVar(&p.slowest, "slowest", 5*time.Millisecond, "fail if a command of Redis takes longer than this `time`")
	flag.Parse()
	p.payload = max(p.payload, 8)
	slog.SetLogLoggerLevel(slog.LevelWarn)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute) //nolint:forbidigo // the program begins here
	defer cancel()
	var failed error
	for name := range strings.SplitSeq(*brokers, ",") {
		if err := bench(ctx, name, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	if failed != nil {
		log.Fatal(failed)
	}
}

// bench measures one broker, and prints its results.
func bench(ctx context.Context, name string, p plan) (err error) {
	s, err := start(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var plain, kept, replayed []float64
	for run := range p.runs {
		r, err := measure(ctx, s, p, run)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "%-6s run %d: plain %8.0f, with Keep %8.0f, replayed %8.0f events/s; the reset took %v\n",
			name, run+1, r.plain, r.kept, r.replayed, r.reset.Round(10*time.Microsecond))
		plain, kept, replayed = append(plain, r.plain), append(kept, r.kept), append(replayed, r.replayed)
	}
	fmt.Fprintf(os.Stdout, "%-6s medians of %d runs of %d events of %d bytes: plain %.0f, with Keep %.0f, replayed %.0f events/s, %.2f of plain\n",
		name, p.runs, p.events, p.payload, median(plain), median(kept), median(replayed), median(replayed)/median(plain))
	if s.redis == nil {
		return nil
	}
	for _, c := range s.phases {
		fmt.Fprintf(os.Stdout, "%-6s slowest command while the program %-22s %8v  %s\n", name, c.phase+":", c.took, c.command)
	}
	return s.check(p.slowest)
}

func median(fs []float64) float64 {
	fs = slices.Sorted(slices.Values(fs))
	return (fs[(len(fs)-1)/2] + fs[len(fs)/2]) / 2
}

// open opens a bus on the server, with a topic that keeps its events.
func open(ctx context.Context, s *server, kept string) (*eventbus.Bus, error) {
	return eventbus.Open(ctx, s.url, eventbus.Options{
		Topics: map[string]eventbus.TopicOptions{kept: {Keep: 24 * time.Hour}},
	}, inmemory.Driver{}, redisstream.Driver{}, nats.Driver{})
}
