package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
)

func newRoot(drivers []backend.Driver) *cobra.Command {
	root := &cobra.Command{
		Use:           "eventbus",
		Short:         "A pluggable event bus for Go services",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	asJSON := root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(newDemo(drivers, asJSON), newVersion(asJSON))
	return root
}

func writeJSON(w io.Writer, v any) error {
	to := json.NewEncoder(w)
	to.SetIndent("", "  ")
	return to.Encode(v)
}
