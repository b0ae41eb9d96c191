package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/service"
)

// A jobSummary is the summary that sub and work print at the end: the deliveries of a job by outcome.
type jobSummary struct {
	Name         string `json:"name,omitempty"` // of the subscription in the file; empty for sub
	Handled      int64  `json:"handled"`
	Retried      int64  `json:"retried"`
	DeadLettered int64  `json:"dead_lettered"`
	Discarded    int64  `json:"discarded"`
	Unconfirmed  int64  `json:"unconfirmed"` // how many of the events above were not confirmed as acknowledged, and are redelivered
	LeasesLost   int64  `json:"leases_lost"`
	Abandoned    int64  `json:"abandoned"`
	Killed       int64  `json:"killed"`               // commands that were ended by a signal
	Late         int64  `json:"late"`                 // of these, when the drain timed out
	Exit         int    `json:"exit"`                 // the exit code
	Failing      int    `json:"failing"`              // events that have failed and wait for another attempt
	LastError    string `json:"last_error,omitempty"` // of the newest of Failing
}

func (j *job) summary() jobSummary {
	c := j.sub.Counts()
	a := jobSummary{
		Handled: j.handled.Load(), Retried: c.Retried, DeadLettered: c.DeadLettered, Discarded: c.Discarded,
		LeasesLost: c.LeasesLost, Abandoned: c.Abandoned,
	}
	if j.named {
		a.Name = j.name
	}
	newest, failing := j.sub.Failing()
	if a.Failing = failing; failing > 0 {
		a.LastError = newest[0].ID + ": " + newest[0].Error
	}
	if j.command != nil {
		a.Killed, a.Late = j.command.Killed()
	}
	if j.group.Options.Ack != eventbus.AckOnReceive {
		a.Unconfirmed = max(a.Handled+a.DeadLettered+a.Discarded-c.Acknowledged, 0)
	}
	return a
}

// conclude returns the error that sets the exit code of a command, or nil for a clean end. Killed commands count as
// panics of the outcome, whose ExitCode decides. An event whose lease was lost is not an error, because another member
// handles it. With failOnDead, events that failed for good are errors.
func conclude(o service.Outcome, summaries []jobSummary, cause error, failOnDead bool) error {
	var sum jobSummary
	for _, a := range summaries {
		sum.Killed += a.Killed
		sum.DeadLettered += a.DeadLettered + a.Discarded
		sum.Unconfirmed += max(a.Unconfirmed-a.LeasesLost, 0)
	}
	var errs []error
	if errors.Is(cause, errOutput) {
		errs = append(errs, cause)
	}
	if o.Err != nil {
		errs = append(errs, o.Err)
	}
	if sum.Unconfirmed > 0 {
		errs = append(errs, fmt.Errorf("not confirmed: %s; these events are redelivered", plural.Of(sum.Unconfirmed, "acknowledgement")))
	}
	if failOnDead && sum.DeadLettered > 0 {
		errs = append(errs, fmt.Errorf("%s failed for good", plural.Of(sum.DeadLettered, "event")))
	}
	o.Panics += sum.Killed
	o.Errors = int64(len(errs))
	switch code := o.ExitCode(); code {
	case service.ExitTimedOut:
		return &exitError{fmt.Errorf("the drain timed out: %s killed, %s left", plural.Of(sum.Killed, "command"), plural.Of(o.Left, "event")), code}
	case service.ExitPanics:
		return &exitError{fmt.Errorf("%s killed", plural.Of(o.Panics, "command")), code}
	case service.ExitErrors:
		return &exitError{errs[0], code}
	}
	return nil
}

func (a jobSummary) write(to io.Writer, asJSON bool) error {
	if asJSON {
		text, err := json.Marshal(a)
		if err == nil {
			_, err = to.Write(append(text, '\n'))
		}
		return err
	}
	_, err := fmt.Fprintln(to, a)
	return err
}

// String returns the summary as a line of text.
func (a jobSummary) String() string {
	s := ""
	if a.Name != "" {
		s = a.Name + ": "
	}
	s += fmt.Sprintf("handled %d, retried %d, dead-lettered %d, discarded %d", a.Handled, a.Retried, a.DeadLettered, a.Discarded)
	if a.Killed > 0 {
		s += fmt.Sprintf(", killed %d", a.Killed)
	}
	if a.Unconfirmed > 0 {
		s += fmt.Sprintf(", not confirmed %d", a.Unconfirmed)
	}
	if a.LeasesLost > 0 {
		s += fmt.Sprintf(", leases lost %d", a.LeasesLost)
	}
	if a.Abandoned > 0 {
		s += fmt.Sprintf(", left unsettled %d", a.Abandoned)
	}
	if a.Failing > 0 {
		s += fmt.Sprintf(", failing %d, the last %s", a.Failing, strings.ReplaceAll(a.LastError, "\n", " "))
	}
	return s
}
