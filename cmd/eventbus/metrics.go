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
	cmd.Flags().StringVar(address, "metrics", "", "`address`, such as :9090, to serve metrics on for Prometheus, at /metrics (default: none)")
}

// serveMetrics serves metrics on address, and adds them to o. If address is empty it does
// nothing. The caller calls watch with the bus that has the options o, to add its gauges.
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
	return server.Watch, func() { _ = server.Close(context.WithoutCancel(ctx)) }, nil // its error does not matter
}
