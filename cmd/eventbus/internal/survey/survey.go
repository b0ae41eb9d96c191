// Package survey describes the topics and groups of a backend.
package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Count is a number, or backend.Unknown.
type Count int64

// String returns the number as text, or "unknown".
func (c Count) String() string {
	if c < 0 {
		return "unknown"
	}
	return strconv.FormatInt(int64(c), 10)
}

// MarshalJSON returns the number, or null if it is unknown.
func (c Count) MarshalJSON() ([]byte, error) {
	if c < 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(c))
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (c *Count) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*c = backend.Unknown
		return nil
	}
	return json.Unmarshal(data, (*int64)(c))
}

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
	DeadLetters Count     `json:"dead_letters"` // in the topic with ".dlq", of all groups
	Members     Count     `json:"members"`
}

// A Survey asks a backend about its topics and groups.
type Survey struct {
	admin   backend.Admin
	statser backend.Statser // nil: numbers are unknown
	reader  backend.Reader  // nil: dead letters without a group are unknown
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
	return s, nil
}

// Topics describes all topics, sorted.
func (s *Survey) Topics(ctx context.Context) ([]Topic, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]Topic, 0, len(names))
	for _, name := range names {
		groups, err := s.admin.Groups(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		depth, err := s.depth(ctx, name, groups)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Topic{Topic: name, Groups: Count(len(groups)), Depth: depth})
	}
	return rows, nil
}

// Groups describes the groups of the named topics, in that order. Without names it
// describes all groups.
func (s *Survey) Groups(ctx context.Context, topics ...string) ([]Group, error) {
	all := len(topics) == 0
	if all {
		var err error
		if topics, err = s.admin.Topics(ctx); err != nil {
			return nil, err
		}
	}
	rows := []Group{}
	for _, topic := range topics {
		of, err := s.groupsOf(ctx, topic)
		if all && errors.Is(err, backend.ErrGone) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	return rows, nil
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
			Oldest: stats.Oldest, DeadLetters: dead, Members: Count(stats.Members),
		})
	}
	return rows, nil
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
	maxCounted = 1000     // the most events counted by reading
	maxBytes   = 16 << 20 // the most bytes of them, because all topics share one timeout
	firstPage  = 10       // each further page is twice as large, up to lastPage
	lastPage   = 100
)

// deadLetters returns the number of events in a dead-letter topic.
func (s *Survey) deadLetters(ctx context.Context, topic string) (Count, error) {
	groups, err := s.admin.Groups(ctx, topic)
	switch {
	case errors.Is(err, backend.ErrGone):
		return 0, nil
	case err != nil:
		return backend.Unknown, err
	}
	return s.depth(ctx, topic, groups)
}

// counted counts the events of a topic by reading, up to maxCounted and maxBytes.
func (s *Survey) counted(ctx context.Context, topic string) (Count, error) {
	if s.reader == nil {
		return backend.Unknown, nil
	}
	n, size, from := 0, 0, ""
	for page := firstPage; n <= maxCounted && size <= maxBytes; page = min(2*page, lastPage) {
		ms, err := s.reader.Read(ctx, topic, from, page)
		switch {
		case errors.Is(err, backend.ErrGone):
			return 0, nil
		case errors.Is(err, errors.ErrUnsupported):
			return backend.Unknown, nil
		case err != nil:
			return backend.Unknown, err
		case len(ms) == 0:
			return Count(n), nil
		}
		n += len(ms)
		for i := range ms {
			size += ms[i].Size()
		}
		from = ms[len(ms)-1].Position
	}
	return backend.Unknown, nil
}
