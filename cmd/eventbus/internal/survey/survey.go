// Package survey describes the topics and groups of a backend.
package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/figures"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A Count is a number, or backend.Unknown.
type Count = figures.Count

// A Topic is the line that the command prints for a topic.
type Topic struct {
	Topic  string `json:"topic"`
	Groups Count  `json:"groups"`
	Depth  Count  `json:"depth"` // events kept
}

// A Group is the line that the command prints for a group.
type Group struct {
	Topic       string    `json:"topic"`
	Group       string    `json:"group"`
	Depth       Count     `json:"depth"`     // events that the topic keeps
	Lag         Count     `json:"lag"`       // not yet delivered to this group
	InFlight    Count     `json:"in_flight"` // leased by a member
	Delayed     Count     `json:"delayed"`   // waiting for a retry
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
	s := &Survey{admin: admin}
	s.statser, _ = backend.As[backend.Statser](b)
	s.reader, _ = backend.As[backend.Reader](b)
	s.pauser, _ = backend.As[backend.Pauser](b)
	return s, nil
}

// Topics describes all topics, sorted. If the backend cannot tell about some of them, it
// returns the other rows, and the errors.
func (s *Survey) Topics(ctx context.Context) ([]Topic, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]Topic, 0, len(names))
	var errs []error
	for _, name := range names {
		row := Topic{Topic: name, Groups: backend.Unknown, Depth: backend.Unknown}
		groups, err := s.admin.Groups(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		if err == nil {
			row.Groups = Count(len(groups))
			row.Depth, err = s.depth(ctx, name, groups)
		}
		rows, errs = append(rows, row), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

// Groups describes the groups of the named topics, in that order. Without names it
// describes all groups. If the backend cannot tell about some topics, Groups returns the
// other rows, and the errors.
func (s *Survey) Groups(ctx context.Context, topics ...string) ([]Group, error) {
	all := len(topics) == 0
	if all {
		var err error
		if topics, err = s.admin.Topics(ctx); err != nil {
			return nil, err
		}
	}
	rows := []Group{}
	var errs []error
	for _, topic := range topics {
		of, err := s.groupsOf(ctx, topic)
		if all && errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		rows, errs = append(rows, of...), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

func (s *Survey) groupsOf(ctx context.Context, topic string) (rows []Group, err error) {
	names, err := s.admin.Groups(ctx, topic)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	dead, err := s.deadLetters(ctx, topic+".dlq")
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
			Depth: Count(stats.Depth), Lag: Count(stats.Lag), InFlight: Count(stats.InFlight), Delayed: Count(stats.Delayed),
			Oldest: stats.Oldest, DeadLetters: dead.of(name), Members: Count(stats.Members), Paused: s.pause(ctx, topic, name),
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
	Depth: backend.Unknown, Lag: backend.Unknown, InFlight: backend.Unknown, Delayed: backend.Unknown, Members: backend.Unknown,
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

const (
	maxCounted     = 1000     // the most events counted by reading
	maxBytes       = 16 << 20 // the most bytes of them, because all topics share one timeout
	maxLetters     = 100_000
	maxLetterBytes = 128 << 20
	firstPage      = 10 // each further page is twice as large, up to lastPage
	lastPage       = 100
)

// letters counts dead letters by the group that failed; nil: their numbers are unknown.
type letters map[string]Count

func (l letters) of(group string) Count {
	if l == nil {
		return backend.Unknown
	}
	return l[group]
}

// deadLetters counts the letters of a dead-letter topic by reading, up to maxLetters and
// maxLetterBytes, and for at most half of the time that ctx leaves.
func (s *Survey) deadLetters(ctx context.Context, topic string) (letters, error) {
	n := letters{}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/2, errEnough)
		defer cancel()
	}
	all, err := s.read(ctx, topic, maxLetters, maxLetterBytes, func(m *backend.Message) { n[m.Headers.Get(letter.Group)]++ })
	if !all || errors.Is(context.Cause(ctx), errEnough) {
		return nil, err
	}
	return n, err
}

// counted counts the events of a topic by reading, up to maxCounted and maxBytes.
func (s *Survey) counted(ctx context.Context, topic string) (Count, error) {
	n := Count(0)
	all, err := s.read(ctx, topic, maxCounted, maxBytes, func(*backend.Message) { n++ })
	if !all {
		n = backend.Unknown
	}
	return n, err
}

// read calls do for the events of a topic, and reports whether it has read all of them within
// the bounds. A topic that does not exist has no events.
func (s *Survey) read(ctx context.Context, topic string, most, mostBytes int, do func(*backend.Message)) (all bool, err error) {
	if s.reader == nil {
		return false, nil
	}
	n, size, from := 0, 0, backend.StartEarliest
	for page := firstPage; n <= most && size <= mostBytes; page = min(2*page, lastPage) {
		ms, err := s.reader.Read(ctx, topic, from, page)
		switch {
		case errors.Is(err, backend.ErrGone):
			return true, nil
		case errors.Is(err, errors.ErrUnsupported), errors.Is(context.Cause(ctx), errEnough):
			return false, nil
		case err != nil:
			return false, err
		case len(ms) == 0:
			return true, nil
		}
		n += len(ms)
		for i := range ms {
			size += ms[i].Size()
			do(&ms[i])
		}
		from = backend.StartAfter(ms[len(ms)-1].Position)
	}
	return false, nil
}

var errEnough = errors.New("half of the time is over")
