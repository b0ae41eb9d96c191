package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/checkup"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/config"
)

const doctorHelp = `Look for anything that puts events at risk, and say what is wrong and what to do about
it: unsafe broker settings, groups in trouble, groups and topics that nobody needs, dead
letters, and clocks that differ. The command changes nothing. docs/doctor.md lists the
codes of the findings.

The exit code is meant for monitoring and follows the convention of Nagios:

  0  no findings, or only notes
  1  there are warnings
  2  there are errors
  3  the command could not check

With --json each finding is a line, and the last line is the summary.`

// The exit codes of doctor.
const (
	exitWarnings = 1
	exitErrors   = 2
	exitBlind    = 3
)

// A doctor is the command "eventbus doctor", with its flags.
type doctor struct {
	connection
	asJSON *bool

	file   string
	ignore []string
	o      checkup.Options
}

func newDoctor(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	d := &doctor{connection: connection{drivers: drivers}, asJSON: asJSON}
	blind := func(err error) error {
		if err == nil {
			return nil
		}
		return &exitError{fmt.Errorf("doctor: %w", err), exitBlind}
	}
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Look for risks to events, with an exit code for monitoring",
		Long:    doctorHelp,
		Example: "  eventbus doctor\n  eventbus doctor --ignore redis-no-aof --ignore topic-unread:audit --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return blind(fmt.Errorf("unexpected argument %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := d.examine(cmd)
			if err == nil {
				err = r.write(cmd.OutOrStdout(), *asJSON)
			}
			if err != nil {
				return blind(err)
			}
			return r.verdict()
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return blind(err) })
	d.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&d.file, "config", "", "configuration `file` of a program: check its backend, and that its groups exist")
	f.StringArrayVar(&d.ignore, "ignore", nil, "leave out a `finding`: CODE, CODE:TOPIC or CODE:TOPIC/GROUP")
	f.DurationVar(&d.o.For, "for", 3*time.Second, "how long to watch the groups; it takes a minute to see that a group is stuck")
	f.DurationVar(&d.o.Late, "late", 5*time.Minute, "the `age` at which the oldest event of a group is late")
	f.DurationVar(&d.o.Old, "old", 24*time.Hour, "the `age` at which dead letters, pauses and events of groups without members are old")
	f.IntVar(&d.o.Letters, "letters", 100, "how many dead letters in a topic are too many")
	return cmd
}

// parse checks the flags.
func (d *doctor) parse(cmd *cobra.Command) error {
	for _, age := range []struct {
		flag string
		d    time.Duration
	}{{"for", d.o.For}, {"late", d.o.Late}, {"old", d.o.Old}, {"connect-timeout", d.timeout}} {
		if age.d <= 0 {
			return fmt.Errorf("--%s must be positive", age.flag)
		}
	}
	switch {
	case d.o.Letters < 1:
		return errors.New("--letters must be positive")
	case d.file != "" && d.url != "":
		return errors.New("give --url or --config, not both")
	case slices.Contains(d.ignore, ""):
		return errors.New("--ignore is empty")
	}
	return filled(cmd, "config")
}

// examine looks at the backend. If the driver refuses the broker because of a finding, the report has that finding.
func (d *doctor) examine(cmd *cobra.Command) (*diagnosis, error) {
	if err := d.parse(cmd); err != nil {
		return nil, err
	}
	ctx, began := cmd.Context(), time.Now()
	bus, unseen, err := d.openBus(cmd)
	r := &checkup.Report{}
	if refused, ok := errors.AsType[*backend.FindingError](err); ok {
		r.Findings, unseen = []backend.Finding{refused.Finding}, []string{"topics and groups, because the driver refuses the broker"}
	} else if err != nil {
		return nil, err
	} else {
		defer d.close(ctx, bus)
		if r, err = checkup.Run(ctx, bus.Backend(), d.o); err != nil {
			return nil, err
		}
	}
	r.Unseen = append(r.Unseen, unseen...)
	return newDiagnosis(r, d.ignore, time.Since(began)), nil
}

// openBus opens the backend of the flags or of the file. From the file it also takes the groups that must exist; unseen
// says in words which of them it cannot name.
func (d *doctor) openBus(cmd *cobra.Command) (bus *eventbus.Bus, unseen []string, err error) {
	ctx := cmd.Context()
	if d.file == "" {
		bus, err = d.open(ctx, eventbus.Options{Service: "eventbus", Observer: logProblems(cmd.ErrOrStderr())})
		return bus, nil, err
	}
	cfg, err := config.Load(d.file)
	if err == nil {
		err = cfg.Check(ctx, d.drivers...)
	}
	if err != nil {
		return nil, nil, badFile(cmd, err, nil)
	}
	for _, name := range cfg.Subscriptions() {
		topic, o, err := cfg.Subscription(name)
		if err != nil {
			return nil, nil, err
		}
		if o.Group == "" || backend.CheckName(topic) != nil {
			unseen = append(unseen, "whether the groups of the subscription "+name+" exist, which has many topics or a group for each instance")
			continue
		}
		d.o.Wanted = append(d.o.Wanted, checkup.Wanted{Subscription: name, Topic: topic, Group: o.Group})
	}
	err = d.bound(ctx, func(ctx context.Context) error {
		bus, err = cfg.OpenBare(ctx, d.drivers...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := d.ping(ctx, bus); err != nil {
		d.close(ctx, bus)
		return nil, nil, err
	}
	return bus, unseen, nil
}

// A diagnosis is the output of the command.
type diagnosis struct {
	findings []findingLine
	summary  summaryLine
}

// A findingLine is a line of doctor --json.
type findingLine struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Server   string `json:"server,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Group    string `json:"group,omitempty"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
	Command  string `json:"command,omitempty"` // for a shell
}

// A summaryLine is the last line of doctor --json.
type summaryLine struct {
	Summary summaryNumbers `json:"summary"`
}

type summaryNumbers struct {
	Errors      int      `json:"errors"`
	Warnings    int      `json:"warnings"`
	Notes       int      `json:"notes"`
	Ignored     int      `json:"ignored"`
	Topics      int      `json:"topics"`
	Groups      int      `json:"groups"`
	Seconds     float64  `json:"seconds"`
	NotLookedAt []string `json:"not_looked_at"`
}

func newDiagnosis(r *checkup.Report, ignore []string, took time.Duration) *diagnosis {
	d := &diagnosis{}
	s := &d.summary.Summary
	*s = summaryNumbers{Topics: r.Topics, Groups: r.Groups, Seconds: took.Seconds(), NotLookedAt: append([]string{}, r.Unseen...)}
	for _, f := range r.Findings {
		place := f.Code + ":" + f.Topic
		if slices.ContainsFunc(ignore, func(i string) bool { return i == f.Code || i == place || i == place+"/"+f.Group }) {
			s.Ignored++
			continue
		}
		switch f.Severity {
		case backend.SeverityError:
			s.Errors++
		case backend.SeverityWarning:
			s.Warnings++
		case backend.SeverityNote:
			s.Notes++
		}
		d.findings = append(d.findings, findingLine{f.Severity.String(), f.Code, f.Server, f.Topic, f.Group, f.Text, f.Remedy, shellLine(f.Command)})
	}
	return d
}

// shellLine returns a command as a line for a shell. Names come from other programs, so every argument that a shell could
// misunderstand is quoted.
func shellLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = arg
		if plain := strings.Trim(arg, shellSafe); arg == "" || plain != "" {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"

// write prints the findings and the summary.
func (d *diagnosis) write(w io.Writer, asJSON bool) error {
	if asJSON {
		to := json.NewEncoder(w)
		for _, f := range d.findings {
			if err := to.Encode(f); err != nil {
				return err
			}
		}
		return to.Encode(d.summary)
	}
	text := &strings.Builder{}
	for _, f := range d.findings {
		place := strings.Trim(f.Topic+"/"+f.Group, "/")
		fmt.Fprintf(text, "%s %s: %s\n  %s\n  remedy: %s\n", strings.ToUpper(f.Severity), f.Code,
			oneLine(cmp.Or(place, f.Server, "the backend")), oneLine(f.Text), f.Remedy)
		if f.Command != "" {
			fmt.Fprintf(text, "    %s\n", f.Command)
		}
	}
	s := d.summary.Summary
	fmt.Fprintf(text, "%s, %s, %s; looked at %s and %s for %.0f s\n", plural.Of(int64(s.Errors), "error"), plural.Of(int64(s.Warnings), "warning"),
		plural.Of(int64(s.Notes), "note"), plural.Of(int64(s.Topics), "topic"), plural.Of(int64(s.Groups), "group"), s.Seconds)
	if s.Ignored > 0 {
		fmt.Fprintf(text, "ignored: %s\n", plural.Of(int64(s.Ignored), "finding"))
	}
	for _, u := range s.NotLookedAt {
		fmt.Fprintf(text, "not looked at: %s\n", u)
	}
	_, err := io.WriteString(printable{w}, text.String())
	return err
}

// oneLine replaces line breaks, because a name or a reason must not look like another finding.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "?") }

// verdict returns the error that sets the exit code.
func (d *diagnosis) verdict() error {
	s := d.summary.Summary
	switch {
	case s.Errors > 0:
		return &exitError{fmt.Errorf("doctor: %s, %s", plural.Of(int64(s.Errors), "error"), plural.Of(int64(s.Warnings), "warning")), exitErrors}
	case s.Warnings > 0:
		return &exitError{errors.New("doctor: " + plural.Of(int64(s.Warnings), "warning")), exitWarnings}
	}
	return nil
}
