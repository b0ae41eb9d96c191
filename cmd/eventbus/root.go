package main

import (
	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
)

const rootHelp = `Publish, consume and look around on any backend, from a shell.

Name the backend with --url or in EVENTBUS_URL. The variable keeps a password in the
URL out of the process list. An error is one line on standard error, with exit code 1.`

func newRoot(drivers []backend.Driver) *cobra.Command {
	root := &cobra.Command{
		Use:           "eventbus",
		Short:         "A pluggable event bus for Go services",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	asJSON := root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(
		newPub(drivers, asJSON), newSub(drivers, asJSON), newWork(drivers, asJSON), newTail(drivers),
		newSchedule(drivers, asJSON), newServe(drivers), newTop(drivers, asJSON), newDoctor(drivers, asJSON), newProcesses(drivers, asJSON), newTopics(drivers, asJSON), newGroups(drivers, asJSON), newDLQ(drivers, asJSON), newPing(drivers, asJSON),
		newConfig(drivers, asJSON), newDemo(drivers, asJSON), newVersion(asJSON),
	)
	return root
}
