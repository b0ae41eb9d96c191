// Command observability shows the spans and metrics that package telemetry makes of a bus.
//
//	go run .                            the life of one event, in memory
//	go run . -url redis://localhost     the same on a broker
//	go run . -svg run.svg               draws two minutes in which a dependency fails and recovers
//
// It prints the trace of the event as a tree, and then the metrics, as Prometheus gets them.
// dashboard.json is for Grafana, alerts.yaml for Prometheus.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("observability", flag.ContinueOnError)
	url := flags.String("url", "mem:", "broker of the event")
	picture := flags.String("svg", "", "`file` for a picture of two minutes, which take two minutes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *picture != "" {
		return drawOutage(ctx, *picture)
	}
	return printLife(ctx, *url, out)
}

func drawOutage(ctx context.Context, file string) error {
	seconds, err := outage(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(draw(seconds)), 0o644)
}
