package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
)

func newPing(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers}
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Check that the backend answers, and how fast",
		Long: `Check that the backend answers, and print how long the round trip took. Connecting is
not included.`,
		Args: topicArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, func(ctx context.Context, b backend.Backend) error {
				start := time.Now()
				if err := backend.Ping(ctx, b); err != nil {
					return err
				}
				took := time.Since(start)
				if *asJSON {
					return writeJSON(cmd.OutOrStdout(), map[string]float64{"seconds": took.Seconds()})
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "answered in %v\n", took.Round(time.Microsecond))
				return err
			})
		},
	}
	c.addFlags(cmd)
	return cmd
}
