package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/survey"
)

func newTopics(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	c := &connection{drivers: drivers}
	all := false
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "List the topics",
		Long: `List the topics, how many groups each has, and its depth: how many events it keeps.
It is unknown if the topic has no group and more than 1,000 events or 16 MiB.

A topic with partitions is one line. Its depth is the sum over all partitions.`,
		Args: topics(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, func(ctx context.Context, b backend.Backend) error {
				s, err := survey.New(b)
				if err != nil {
					return err
				}
				s.Inner = all
				rows, err := s.Topics(ctx)
				if *asJSON {
					return errors.Join(writeJSON(cmd.OutOrStdout(), rows), err)
				}
				return errors.Join(writeTopics(cmd.OutOrStdout(), rows), err)
			})
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, allUsage)
	cmd.AddCommand(newTopicsDeclare(drivers, asJSON), newTopicsSet(drivers, asJSON), newTopicsDelete(drivers, asJSON))
	return cmd
}

const allUsage = "list also the inner topics of topics with partitions: partitions, owners and members"

func writeTopics(to io.Writer, rows []survey.Topic) error {
	heading := "TOPIC\tGROUPS\tDEPTH"
	divided := slices.ContainsFunc(rows, func(t survey.Topic) bool { return t.Partitions > 0 })
	if divided {
		heading += "\tPARTITIONS"
	}
	return writeTable(to, heading, rows, func(w io.Writer, t survey.Topic) {
		fmt.Fprintf(w, "%s\t%v\t%v", t.Topic, t.Groups, t.Depth)
		writePartitions(w, divided, t.Partitions)
		fmt.Fprintln(w)
	})
}

// writePartitions writes a number of partitions, if the table has a column for it.
func writePartitions(w io.Writer, divided bool, n int) {
	switch {
	case divided && n > 0:
		fmt.Fprintf(w, "\t%d", n)
	case divided:
		fmt.Fprint(w, "\t-")
	}
}

// writeTable writes a heading and rows; without rows, nothing.
func writeTable[R any](to io.Writer, heading string, rows []R, write func(io.Writer, R)) error {
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(printable{to}, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	for _, r := range rows {
		write(w, r)
	}
	return w.Flush()
}

// A printable passes on text for people. It replaces control characters, because a
// terminal would obey the control characters of an event.
type printable struct{ to io.Writer }

func (w printable) Write(p []byte) (int, error) {
	text := bytes.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, p)
	if _, err := w.to.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}
