package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
	"github.com/seed41896749/eventbus/observer"
)

const demoHelp = `Publish the events of a shop to three groups, and account for each of them.

billing fails now and then, shipping too, and must keep the order of each
customer's events all the same; audit acknowledges on receipt. What cannot be
decoded or is refused ends as a dead letter. The account at the end is made from
what was published, what the handlers saw and which dead letters could be read.
The exit code is 1 if anything is lost or out of order.

The input has one JSON object a line:

  {"id":"e-1","type":"order.placed","source":"shop","subject":"o-1","key":"c-1",
   "time":"2026-03-02T08:00:00Z","headers":{"region":"north"},"data":{"order":"o-1","cents":1290}}

All fields may be missing; others are refused. Events of one key stay in order.
The input is read as fast as the slowest group handles it: beside what is on its
way, at most 2,048 events or 32 MiB, it keeps some 30 bytes an event
and 200 a key.`

func newDemo(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	var input, url string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small shop on the bus and account for every event",
		Long:  demoHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd, input, url, *asJSON, drivers)
		},
	}
	cmd.Flags().StringVar(&input, "input", "", "NDJSON `file` with events, - for standard input (default 2,000 events of a shop)")
	cmd.Flags().StringVar(&url, "url", "mem:", "`backend` to run on")
	return cmd
}

func runDemo(cmd *cobra.Command, input, url string, asJSON bool, drivers []backend.Driver) error {
	name, from, err := openInput(cmd.InOrStdin(), input)
	if err != nil {
		return err
	}
	defer from.Close()
	bus, err := eventbus.Open(cmd.Context(), url, eventbus.Options{
		Service: "eventbus-demo", Observer: unexpected(cmd.ErrOrStderr()),
	}, drivers...)
	if err != nil {
		return err
	}
	start := time.Now()
	d := demo.New(bus, demo.NewInput(name, from))
	stop := func() {}
	if !asJSON {
		stop = demo.StartProgress(cmd.OutOrStdout(), d.Account()).Stop
	}
	err = d.Run(cmd.Context())
	stop()
	report := d.Account().Report(name, time.Since(start))
	if err != nil {
		if cmd.Context().Err() != nil {
			return fmt.Errorf("demo: ended after %d events: %w", report.Published, context.Cause(cmd.Context()))
		}
		return fmt.Errorf("demo: %w", err)
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), report)
	} else {
		err = report.WriteText(cmd.OutOrStdout())
	}
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// openInput returns what to read, and what to call it.
func openInput(stdin io.Reader, input string) (name string, from io.ReadCloser, err error) {
	switch input {
	case "":
		return "the shop", io.NopCloser(shop.Events()), nil
	case "-":
		return "standard input", io.NopCloser(stdin), nil
	}
	f, err := os.Open(input)
	return input, f, err
}

// unexpected logs what the demo does not plan for: its dead letters it does.
func unexpected(w io.Writer) observer.Observer {
	o := observer.Slog(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
	o.DeadLettered = nil
	return o
}
