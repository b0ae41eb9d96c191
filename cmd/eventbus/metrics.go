package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/metrics"
)

// metricsFlag adds --metrics to a command.
func metricsFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "metrics", "", "`address`, such as :9090, on which to serve Prometheus metrics at /metrics (default: none)")
}

// serveMetrics serves metrics on address, and adds the observer and middleware that measure to o. Call watch with the bus
// that is opened with o, to add its gauges. With an empty address it does nothing.
func serveMetrics(ctx context.Context, address string, stderr io.Writer, o *eventbus.Options) (watch func(*eventbus.Bus) error, end func(), err error) {
	if address == "" {
		return func(*eventbus.Bus) error { return nil }, func() {}, nil
	}
	server, err := metrics.Listen(ctx, address)
	if err != nil {
		return nil, nil, fmt.Errorf("--metrics: %w", err)
	}
	server.Measure(o)
	fmt.Fprintf(stderr, "metrics at %s\n", server.URL())
	return server.Watch, func() { _ = server.Close(context.WithoutCancel(ctx)) }, nil // nothing depends on it
}
