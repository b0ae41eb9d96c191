package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
)

// The exit codes of [Outcome.ExitCode]. If several apply, the highest wins.
const (
	ExitClean    = 0 // none of the following
	ExitErrors   = 1 // Outcome.Errors
	ExitPanics   = 2 // Outcome.Panics: a handler panicked
	ExitTimedOut = 3 // Outcome.TimedOut, or events were left
)

// An Outcome counts what happened in a service since its start. It counts every run once, whether
// its group is running, was stopped, or was aborted at the end of the drain. A run that is still
// in progress when the drain ends counts under Left, and its later result is not counted.
type Outcome struct {
	// Errors is the number of errors of the service itself: groups that could not start or failed
	// for good, servers that failed, and failures of the shutdown other than its deadline. Err has
	// these errors. A failing handler is not an error of the service, because the event is retried;
	// if you see it differently, add DeadLettered to Errors.
	Errors int64
	Err    error

	Failures     int64 // runs that failed, including panics and timeouts
	Panics       int64 // how many of Failures panicked
	Timeouts     int64 // how many of Failures exceeded their timeout
	Snoozed      int64 // runs that returned Snooze
	DeadLettered int64 // events stored in a dead-letter topic
	Discarded    int64 // events acknowledged without success and without a dead letter

	// Left is the number of events that were still held when their drain ended. Other members get
	// them when their leases have expired.
	Left     int64
	TimedOut bool // the drain timed out, or a second signal aborted it

	// Groups holds the counts of each group by name. If a name was registered more than once, it has
	// the sum.
	Groups map[string]eventbus.Counts
}

// ExitCode returns the exit code for the program: the highest one that applies.
func (o Outcome) ExitCode() int {
	switch {
	case o.TimedOut || o.Left > 0:
		return ExitTimedOut
	case o.Panics > 0:
		return ExitPanics
	case o.Errors > 0:
		return ExitErrors
	}
	return ExitClean
}

// String returns the outcome as a line of text, without Groups.
func (o Outcome) String() string {
	parts := []string{
		fmt.Sprintf("failures %d (panics %d, timeouts %d)", o.Failures, o.Panics, o.Timeouts),
		fmt.Sprintf("snoozed %d, dead-lettered %d, discarded %d, left %d", o.Snoozed, o.DeadLettered, o.Discarded, o.Left),
	}
	if o.TimedOut {
		parts = append(parts, "the drain timed out")
	}
	if o.Err != nil {
		parts = append(parts, strings.ReplaceAll(o.Err.Error(), "\n", "; "))
	}
	return strings.Join(parts, ", ")
}

// Outcome returns the outcome so far, or after Run the outcome of Run.
func (s *Service) Outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.totals
	o.Groups = maps.Clone(o.Groups)
	errs := slices.Clone(s.errs)
	for _, name := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[name]
		if m.sub == nil {
			continue
		}
		o.add(name, m.sub.Counts())
		if err := m.sub.Err(); err != nil {
			errs = append(errs, m.wrap(err))
		}
	}
	o.Errors, o.Err = int64(len(errs)), errors.Join(errs...)
	return o
}

// count moves a group from the members to the totals after its drain returned the error drained, so
// that each group is in one of them. Only the first call for m counts.
func (s *Service) count(m *member, drained error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[m.name] != m {
		return
	}
	delete(s.members, m.name)
	s.totals.add(m.name, m.sub.Counts())
	if left, ok := errors.AsType[*eventbus.DrainError](drained); ok {
		for _, a := range left.Abandoned {
			s.totals.Left += int64(a.Handlers + a.Unsettled)
		}
	}
	if err := m.sub.Err(); err != nil {
		s.errs = append(s.errs, m.wrap(err))
	}
}

// add adds the counts of a group.
func (o *Outcome) add(name string, c eventbus.Counts) {
	o.Failures += c.Failures
	o.Panics += c.Panics
	o.Timeouts += c.Timeouts
	o.Snoozed += c.Snoozes
	o.DeadLettered += c.DeadLettered
	o.Discarded += c.Discarded
	if o.Groups == nil {
		o.Groups = map[string]eventbus.Counts{}
	}
	o.Groups[name] = sum(o.Groups[name], c)
}

// sum adds two counts.
func sum(x, y eventbus.Counts) eventbus.Counts {
	return eventbus.Counts{
		Received: x.Received + y.Received, Acknowledged: x.Acknowledged + y.Acknowledged,
		Failures: x.Failures + y.Failures, Panics: x.Panics + y.Panics, Timeouts: x.Timeouts + y.Timeouts, Snoozes: x.Snoozes + y.Snoozes,
		Retried: x.Retried + y.Retried, DeadLettered: x.DeadLettered + y.DeadLettered, Discarded: x.Discarded + y.Discarded,
		LeasesLost: x.LeasesLost + y.LeasesLost, Abandoned: x.Abandoned + y.Abandoned,
		Held: x.Held + y.Held, HeldBytes: x.HeldBytes + y.HeldBytes, Running: x.Running + y.Running,
	}
}
