// Package survey describes the topics and groups of a backend.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
)

// A Count is a number, or backend.Unknown.
type Count = groupstats.Count

// A Topic is the line that the command prints for a topic.
type Topic struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions,omitempty"` // 0: the topic has none
	Groups     Count  `json:"groups"`
	Depth      Count  `json:"depth"` // events kept
}

// A Group is the line that the command prints for a group.
type Group struct {
	Topic       string    `json:"topic"`
	Group       string    `json:"group"`
	Partitions  int       `json:"partitions,omitempty"` // 0: the topic has none
	Depth       Count     `json:"depth"`                // events that the topic keeps
	Lag         Count     `json:"lag"`                  // not yet delivered to this group
	Unacked     Count     `json:"unacked"`              // delivered and not settled: in flight and delayed
	InFlight    Count     `json:"in_flight"`            // leased by a member
	Delayed     Count     `json:"delayed"`              // waiting for a retry
	Oldest      time.Time `json:"oldest,omitzero"`
	DeadLetters Count     `json:"dead_letters"` // of this group, in the topic with ".dlq"
	Members     Count     `json:"members"`
	Paused      *Pause    `json:"paused,omitempty"` // nil: not paused, or the backend cannot tell
}

// A Pause is the pause of a group.
type Pause struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// String returns the pause as text, or "-" for nil.
func (p *Pause) String() string {
	if p == nil {
		return "-"
	}
	text := "since " + p.Since.Format(time.RFC3339)
	if !p.Until.IsZero() {
		text += " until " + p.Until.Format(time.RFC3339)
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Why != "" {
		text += ": " + p.Why
	}
	return text
}

// A Survey asks a backend about its topics and groups.
type Survey struct {
	// Inner adds rows of the topics of which topics with partitions consist.
	Inner bool

	backend backend.Backend
	admin   backend.Admin
	statser backend.Statser // nil: numbers are unknown
	reader  backend.Reader  // nil: dead letters without a group are unknown
	pauser  backend.Pauser  // nil: pauses are unknown
}

// New returns a survey of b, which must implement [backend.Admin].
func New(b backend.Backend) (*Survey, error) {
	admin, ok := backend.As[backend.Admin](b)
	if !ok {
		return nil, fmt.Errorf("this backend cannot list topics and groups: %w", errors.ErrUnsupported)
	}
	s := &Survey{backend: b, admin: admin}
	s.statser, _ = backend.As[backend.Statser](b)
	s.reader, _ = backend.As[backend.Reader](b)
	s.pauser, _ = backend.As[backend.Pauser](b)
	return s, nil
}

// Topics describes all topics, sorted. A topic with partitions is one row. If the backend cannot tell about some of them, Topics returns
// the other rows, and the errors.
func (s *Survey) Topics(ctx context.Context) ([]Topic, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := s.divided(ctx, names)
	rows, errs := make([]Topic, 0, len(names)), []error{err}
	for topic, n := range numbers {
		row, err := s.wholeTopic(ctx, topic, n)
		rows, errs = append(rows, row), append(errs, err)
	}
	for _, name := range names {
		if inner(name, numbers) && !s.Inner {
			continue
		}
		row, _, err := s.topic(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		rows, errs = append(rows, row), append(errs, err)
	}
	slices.SortFunc(rows, func(a, b Topic) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(b.Partitions, a.Partitions))
	})
	return rows, errors.Join(errs...)
}

// topic describes one topic as it is stored, and returns its groups.
func (s *Survey) topic(ctx context.Context, name string) (row Topic, groups []string, err error) {
	row = Topic{Topic: name, Groups: backend.Unknown, Depth: backend.Unknown}
	groups, err = s.admin.Groups(ctx, name)
	if err == nil {
		row.Groups = Count(len(groups))
		row.Depth, err = s.depth(ctx, name, groups)
	}
	return row, groups, err
}

// Groups describes the groups of the named topics, in that order. Without names it
// describes all groups. A group of a topic with partitions is one row. If the backend cannot tell about some topics, Groups returns the
// other rows, and the errors.
func (s *Survey) Groups(ctx context.Context, topics ...string) ([]Group, error) {
	if len(topics) == 0 {
		return s.allGroups(ctx)
	}
	rows := []Group{}
	var errs []error
	for _, topic := range topics {
		n, err := operator.Partitions(ctx, s.backend, topic)
		errs = append(errs, err)
		if n > 0 {
			of, err := s.wholeGroups(ctx, topic, n)
			rows, errs = append(rows, of...), append(errs, err)
		}
		of, err := s.groupsOf(ctx, topic)
		if n > 0 && errors.Is(err, backend.ErrGone) {
			continue // as it should be
		}
		rows, errs = append(rows, of...), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

func (s *Survey) allGroups(ctx context.Context) ([]Group, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := s.divided(ctx, names)
	rows, errs := []Group{}, []error{err}
	for topic, n := range numbers {
		of, err := s.wholeGroups(ctx, topic, n)
		rows, errs = append(rows, of...), append(errs, err)
	}
	for _, name := range names {
		if inner(name, numbers) && !s.Inner {
			continue
		}
		of, err := s.groupsOf(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		rows, errs = append(rows, of...), append(errs, err)
	}
	slices.SortStableFunc(rows, func(a, b Group) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(b.Partitions, a.Partitions))
	})
	return rows, errors.Join(errs...)
}

// groupsOf describes the groups of a topic as it is stored.
func (s *Survey) groupsOf(ctx context.Context, topic string) (rows []Group, err error) {
	rows, err = s.statsOf(ctx, topic)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	dead, err := s.deadLetters(ctx, topic+".dlq")
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].DeadLetters = dead.of(rows[i].Group)
	}
	return rows, nil
}

// statsOf describes the groups of a topic as it is stored, without their dead letters.
func (s *Survey) statsOf(ctx context.Context, topic string) (rows []Group, err error) {
	names, err := s.admin.Groups(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		stats, err := s.stats(ctx, topic, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, Group{
			Topic: topic, Group: name,
			Depth: Count(stats.Depth), Lag: Count(stats.Lag), Unacked: Count(stats.Unacked), InFlight: Count(stats.InFlight), Delayed: Count(stats.Delayed),
			Oldest: stats.Oldest, Members: Count(stats.Members), Paused: s.pause(ctx, topic, name),
		})
	}
	return rows, nil
}

// pause returns the pause of a group, or nil.
func (s *Survey) pause(ctx context.Context, topic, group string) *Pause {
	if s.pauser == nil {
		return nil
	}
	p, err := s.pauser.Paused(ctx, topic, group)
	if err != nil || p.Since.IsZero() {
		return nil
	}
	return &Pause{p.Since, p.Until, p.By, p.Why}
}

var unknown = backend.Stats{
	Depth: backend.Unknown, Lag: backend.Unknown, Unacked: backend.Unknown, InFlight: backend.Unknown, Delayed: backend.Unknown, Members: backend.Unknown,
}

func (s *Survey) stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if s.statser == nil {
		return unknown, nil
	}
	stats, err := s.statser.Stats(ctx, topic, group)
	if errors.Is(err, errors.ErrUnsupported) {
		return unknown, nil
	}
	return stats, err
}

// depth returns the number of kept events, from the stats of any group. Without a group it
// counts them by reading, up to maxCounted and maxBytes.
func (s *Survey) depth(ctx context.Context, topic string, groups []string) (Count, error) {
	for _, g := range groups {
		stats, err := s.stats(ctx, topic, g)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		if err != nil || stats.Depth >= 0 {
			return Count(stats.Depth), err
		}
		break
	}
	return s.counted(ctx, topic)
}
