package main

import (
	"context"
	"fmt"
	"io"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/metrics"
)

// serve serves metrics if --metrics is set, and adds them to o. watch adds the gauges of the
// bus with these options.
func (s *sub) serve(ctx context.Context, stderr io.Writer, o *eventbus.Options) (watch func(*eventbus.Bus) error, end func(), err error) {
	if s.metrics == "" {
		return func(*eventbus.Bus) error { return nil }, func() {}, nil
	}
	server, err := metrics.Listen(ctx, s.metrics)
	if err != nil {
		return nil, nil, fmt.Errorf("--metrics: %w", err)
	}
	server.Measure(o)
	fmt.Fprintf(stderr, "metrics at %s\n", server.URL())
	return server.Watch, func() { _ = server.Close(context.WithoutCancel(ctx)) }, nil // a connection that was cut off has nothing to say
}
