package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
)

const demoHelp = `Publish the events of a shop to three groups, and account for each of them.

billing fails now and then, and so does shipping, which must keep the order of each
customer's events all the same; audit acknowledges on receipt. Events that cannot be
decoded or are refused end as dead letters. The count at the end compares what was
published, what the handlers saw and which dead letters could be read. The exit code is
1 if an event is lost, or out of order when it is handled for the first time. Events
that are handled twice are shown but are no error: the bus promises at least once.

On a broker each run uses topics of its own, PREFIX.events and PREFIX.events.dlq, and
deletes them at the end if the count is right. With --topic-prefix you choose the
names, and the topics stay; events of earlier runs in them are ignored.

The input has one JSON object per line:

  {"id":"e-1","type":"order.placed","source":"shop","subject":"o-1","key":"c-1",
   "time":"2026-03-02T08:00:00Z","headers":{"region":"north"},"data":{"order":"o-1","cents":1290}}

Every field is optional, and unknown fields are refused. Events with the same key stay
in order. The demo drops "ttl" and "retry", because an event that expires would count
as lost. It reads the input only as fast as the slowest group handles it. Besides
events on their way, at most 2,048 or 32 MiB, it keeps about 30 bytes per event and 200
per key.`

func newDemo(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers, fallback: "mem:"}
	var d demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small shop on the bus and account for every event",
		Long:  demoHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := runDemo(cmd, c, d, *asJSON); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&d.input, "input", "", "NDJSON `file` with events, or - for standard input (default: 2,000 events of a shop)")
	c.addFlags(cmd)
	cmd.Flags().Lookup("url").Usage = "`backend` (default: " + urlVariable + ", or else mem:)"
	cmd.Flags().StringVar(&d.prefix, "topic-prefix", "", "`prefix` for the names of the topics (default: a new one)")
	metricsFlag(cmd, &d.metrics)
	return cmd
}

// demoFlags are the flags that only demo has.
type demoFlags struct{ input, prefix, metrics string }

func runDemo(cmd *cobra.Command, c *connection, f demoFlags, asJSON bool) error {
	name, from := "the shop", io.NopCloser(shop.Events())
	if f.input != "" {
		var err error
		if name, from, err = openInput(cmd.InOrStdin(), f.input); err != nil {
			return err
		}
	}
	defer from.Close()
	own, prefix := f.prefix == "", f.prefix
	if own {
		prefix = "demo-" + uuid.NewString()
	}
	watch := logProblems(cmd.ErrOrStderr())
	watch.Retried, watch.DeadLettered = nil, nil // not logged, because the demo causes failures by itself
	// With --topic-prefix the topic may still hold the IDs of an earlier run of the same
	// input, which Dedup would drop.
	o := eventbus.Options{Service: "eventbus-demo", Observer: watch, Dedup: own && c.isBroker()}
	watchBus, closeMetrics, err := serveMetrics(cmd.Context(), f.metrics, cmd.ErrOrStderr(), &o)
	if err != nil {
		return err
	}
	defer closeMetrics()
	bus, err := openDemo(cmd.Context(), c, o)
	if err != nil {
		return err
	}
	if err := watchBus(bus); err != nil {
		c.close(cmd.Context(), bus)
		return err
	}
	start := time.Now()
	d := demo.New(bus, prefix+".events", demo.NewInput(name, from))
	stop := func() {}
	if !asJSON {
		stop = demo.StartProgress(cmd.OutOrStdout(), d.Account()).Stop
	}
	err = d.Run(cmd.Context())
	stop()
	report := d.Account().Report(name, time.Since(start))
	if err != nil {
		if cmd.Context().Err() != nil {
			return fmt.Errorf("ended after %s: %w", plural.Of(report.Published, "event"), context.Cause(cmd.Context()))
		}
		return err
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.WriteText(cmd.OutOrStdout())
	}
	wrong := report.Err()
	if wrong == nil && own {
		wrong = deleteTopics(cmd.Context(), c, d.Topics()) // even if the report could not be printed
	}
	return errors.Join(err, wrong)
}

// openDemo returns a bus with the options o, but without deduplication if the backend does not support it.
func openDemo(ctx context.Context, c *connection, o eventbus.Options) (*eventbus.Bus, error) {
	bus, err := c.open(ctx, o)
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok && f.Field == "Options.Dedup" {
		o.Dedup = false
		return c.open(ctx, o)
	}
	return bus, err
}

// deleteTopics removes the demo's topics from a broker, unless the backend cannot delete topics.
func deleteTopics(ctx context.Context, c *connection, names []string) error {
	bus, err := c.open(ctx, eventbus.Options{})
	if err != nil {
		return err
	}
	defer c.close(ctx, bus)
	admin, ok := backend.As[backend.Admin](bus.Backend())
	if !ok {
		return nil
	}
	for _, name := range names {
		err := c.bound(ctx, func(ctx context.Context) error { return admin.DeleteTopic(ctx, name) })
		if err != nil && !errors.Is(err, backend.ErrGone) && ignoreUnsupported(err) != nil {
			return fmt.Errorf("the count is right, but topic %s is still there: %w", name, err)
		}
	}
	return nil
}
