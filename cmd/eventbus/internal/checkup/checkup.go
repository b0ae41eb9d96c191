// Package checkup looks for anything that puts a backend's events at risk, in the settings of
// its broker, its topics and its groups. It does the work of eventbus doctor.
package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// Options say how long to watch, and what is worth reporting.
type Options struct {
	For     time.Duration // how long to watch the groups
	Late    time.Duration // the age at which the oldest event of a group is late
	Old     time.Duration // the age at which dead letters, pauses and events of groups without members are old
	Letters int           // how many dead letters are too many
	Wanted  []Wanted      // groups that must exist
}

// A Wanted is a group that a program needs.
type Wanted struct{ Subscription, Topic, Group string }

// A Report is the result of Run.
type Report struct {
	Findings []backend.Finding // the most severe first, then by topic, group and server
	Topics   int
	Groups   int
	Unseen   []string // what Run did not check, in words
}

// A run collects findings.
type run struct {
	Options
	Report
	backend  backend.Backend
	snapshot *groupstats.Snapshot
	now      time.Time
}

// Run examines b for o.For and changes nothing. Its calls are limited like those of a [groupstats.Sampler]. An error
// says why there is no report. If a finding about the broker explains why its topics cannot be read, there is a report
// with that finding instead.
func Run(ctx context.Context, b backend.Backend, o Options) (*Report, error) {
	r := &run{Options: o, backend: b}
	if err := r.broker(ctx); err != nil {
		return nil, err
	}
	explained := slices.ContainsFunc(r.Findings, func(f backend.Finding) bool { return f.Severity == backend.SeverityError })
	if err := r.events(ctx); err != nil {
		if !explained {
			return nil, err
		}
		r.unseen("some of the topics and groups: %v", err)
	}
	slices.SortFunc(r.Findings, func(a, b backend.Finding) int {
		return cmp.Or(-cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Server, b.Server), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return &r.Report, nil
}

// events checks topics and groups. It checks the owners of partitions twice, before and after
// everything else, because they come and go.
func (r *run) events(ctx context.Context) error {
	before, err := r.owners(ctx, nil)
	if err != nil {
		return err
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	r.groups()
	r.missing()
	r.letters()
	for _, step := range []func(context.Context) error{r.unread, r.numbers, r.clock, r.settings} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if len(before) > 0 {
		_, err = r.owners(ctx, before)
	}
	return err
}

// find adds a finding about a topic or a group.
func (r *run) find(severity backend.Severity, code, topic, group, text, remedy string, command ...string) {
	r.Findings = append(r.Findings, backend.Finding{
		Code: code, Severity: severity, Topic: topic, Group: group, Text: text, Remedy: remedy, Command: command,
	})
}

func (r *run) unseen(format string, args ...any) {
	r.Unseen = append(r.Unseen, fmt.Sprintf(format, args...))
}

// broker queries the driver for its broker's settings.
func (r *run) broker(ctx context.Context) error {
	found, err := backend.Check(ctx, r.backend)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // the backend has no broker
	}
	r.Findings = append(r.Findings, found...)
	return err
}

const calling = time.Minute // how much longer than For the rounds may take

// watch checks the groups for r.For, and for at least two rounds, because lost events only show
// in two.
func (r *run) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.For+calling)
	defer cancel()
	sampler := groupstats.NewSampler(r.backend, groupstats.Options{Interval: min(r.For, time.Second), Behind: r.Late, Stuck: max(r.Late, groupstats.Still)})
	began, rounds, last := time.Now(), 0, time.Time{}
	for ctx.Err() == nil && (rounds < 2 || time.Since(began) < r.For) {
		s := sampler.Look(ctx)
		switch {
		case s.Err != nil:
			return s.Err
		case !s.Tried.Equal(last):
			rounds, last = rounds+1, s.Tried
			if !s.Taken.IsZero() {
				r.snapshot = s
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if r.snapshot == nil {
		return cmp.Or(context.Cause(ctx), errors.New("no stats"))
	}
	r.now, r.Topics, r.Groups = time.Now(), len(r.snapshot.Topics), len(r.snapshot.Groups())
	if n := r.snapshot.Beyond; n > 0 {
		r.unseen("%d further groups", n)
	}
	if r.For < groupstats.Still {
		r.unseen("whether groups are stuck: look for %v or more", groupstats.Still)
	}
	for _, t := range r.snapshot.Topics {
		if t.Err != "" {
			r.unseen("the groups of %s: %s", t.Name, t.Err)
		}
	}
	return nil
}
