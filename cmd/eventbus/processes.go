package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

const processesHelp = `Show the processes that work for groups and announce themselves, with package presence
or with --announce of sub and work. With a topic, show the members that read it.

  STATE     of the subscription; silent if the process has sent no heartbeat for three
            times its interval: it is dead, hangs, or cannot reach the broker
  RUNNING   handlers that are running, and how many may run
  HELD      events that the member holds
  FAILING   events of the member that have failed and wait for another attempt

With --settings each line is a setting in force in a group, and its value. A setting
that differs between members has a line for each value, with the processes that use it.`

// noProcesses is printed if there is no heartbeat.
const noProcesses = "No process announces itself. Programs do so with package presence, and sub and work with --announce."

// A processes is the command "eventbus processes", with its flags.
type processes struct {
	connection
	asJSON *bool

	settings bool
}

func newProcesses(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	p := &processes{connection: connection{drivers: drivers}, asJSON: asJSON}
	cmd := &cobra.Command{
		Use:     "processes [TOPIC...]",
		Short:   "Show the processes that work for groups, and their settings",
		Long:    processesHelp,
		Example: "  eventbus processes\n  eventbus processes orders --settings",
		Args:    topicArgs(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.look(cmd, func(ctx context.Context, b backend.Backend) error {
				all, err := presence.Processes(ctx, b)
				if err != nil {
					return err
				}
				if len(all) == 0 && !*asJSON {
					fmt.Fprintln(cmd.ErrOrStderr(), noProcesses)
				}
				for i := range all {
					if n := all[i].More; n > 0 {
						fmt.Fprintf(cmd.ErrOrStderr(), "The heartbeat of %s leaves out %s.\n", all[i].Name, plural.Of(n, "subscription"))
					}
				}
				return p.write(cmd.OutOrStdout(), reading(all, args))
			})
		},
	}
	p.addFlags(cmd)
	cmd.Flags().BoolVar(&p.settings, "settings", false, "show the settings in force in each group")
	return cmd
}

// reading returns the processes that read one of topics, with only those subscriptions. Without topics it returns all.
func reading(all []presence.Process, topics []string) []presence.Process {
	if len(topics) == 0 {
		return all
	}
	for i := range all {
		all[i].Subscriptions = slices.DeleteFunc(all[i].Subscriptions, func(s presence.Subscription) bool {
			return !slices.ContainsFunc(topics, s.Reads)
		})
	}
	return slices.DeleteFunc(all, func(p presence.Process) bool { return len(p.Subscriptions) == 0 })
}

func (p *processes) write(to io.Writer, all []presence.Process) error {
	switch {
	case p.settings && *p.asJSON:
		return writeJSON(to, append([]presence.Setting{}, presence.Compare(all)...))
	case p.settings:
		return writeSettings(to, presence.Compare(all))
	case *p.asJSON:
		return writeJSON(to, append([]presence.Process{}, all...))
	}
	return writeProcesses(to, all, time.Now())
}

func writeProcesses(to io.Writer, all []presence.Process, now time.Time) error {
	type row struct {
		*presence.Process
		presence.Subscription
	}
	var rows []row
	for i := range all {
		for _, s := range all[i].Subscriptions {
			rows = append(rows, row{&all[i], s})
		}
		if len(all[i].Subscriptions) == 0 {
			rows = append(rows, row{&all[i], presence.Subscription{Topic: "-", Group: "-", State: "-"}})
		}
	}
	return writeTable(to, "PROCESS\tVERSION\tUP\tTOPIC\tGROUP\tSTATE\tRUNNING\tHELD\tFAILING\tPARTITIONS", rows, func(w io.Writer, r row) {
		state := r.State
		if r.Silent {
			state = "silent"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d of %d\t%d\t%d\t%s\n", r.Name, cmp.Or(r.Version, "-"), age(r.Started, now),
			r.Topic, r.Group, state, r.Running, r.Handlers, r.Held, r.Failing, cmp.Or(partition.Ranges(r.Subscription.Partitions), "-"))
	})
}

func writeSettings(to io.Writer, all []presence.Setting) error {
	type row struct {
		presence.Setting
		presence.Value
	}
	var rows []row
	for _, s := range all {
		for _, v := range s.Values {
			rows = append(rows, row{s, v})
		}
	}
	return writeTable(to, "TOPIC\tGROUP\tSETTING\tVALUE\tPROCESSES", rows, func(w io.Writer, r row) {
		of := "all"
		if r.Differs() {
			of = strings.Join(r.Processes, ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Topic, r.Group, r.Setting.Name, cmp.Or(r.Text, "-"), of)
	})
}
