package groupstats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// A TopicRow is the line of a topic in the output of eventbus topics.
type TopicRow struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions,omitempty"` // 0: the topic has none
	Groups     Count  `json:"groups"`
	Depth      Count  `json:"depth"` // events that the topic keeps
}

// A GroupRow is the line of a group in the output of eventbus groups.
type GroupRow struct {
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Partitions int    `json:"partitions,omitempty"` // 0: the topic has none
	Stats
	DeadLetters Count     `json:"dead_letters"`     // of this group, in the topic with ".dlq"
	Paused      *PauseRow `json:"paused,omitempty"` // nil: not paused, or the backend does not know
}

// A PauseRow is the pause of a group.
type PauseRow struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// String returns the pause as text, or "-" for nil.
func (p *PauseRow) String() string {
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

// A Survey lists the topics and groups of a backend once, while its caller waits. Unlike a [Sampler] it has no bound
// on the number of calls, asks for the true number of partitions, and counts the events of topics without a group by
// reading them. Its methods return what they found together with the errors about the rest.
type Survey struct {
	// Inner adds a row for each of the topics that make up a topic with partitions.
	Inner bool

	backend backend.Backend
	admin   backend.Admin
	pauser  backend.Pauser // nil: pauses are unknown
}

// NewSurvey returns a survey of b, which must implement [backend.Admin].
func NewSurvey(b backend.Backend) (*Survey, error) {
	admin, ok := backend.As[backend.Admin](b)
	if !ok {
		return nil, fmt.Errorf("this backend cannot list topics and groups: %w", errors.ErrUnsupported)
	}
	s := &Survey{backend: b, admin: admin}
	s.pauser, _ = backend.As[backend.Pauser](b)
	return s, nil
}

// Topics describes all topics, sorted by name. A topic with partitions is one row.
func (s *Survey) Topics(ctx context.Context) ([]TopicRow, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := s.partitionNumbers(ctx, names)
	rows, errs := make([]TopicRow, 0, len(names)), []error{err}
	for topic, n := range numbers {
		row, err := s.partitionedTopic(ctx, topic, n)
		rows, errs = append(rows, row), append(errs, err)
	}
	for _, name := range names {
		if isInnerTopic(name, numbers) && !s.Inner {
			continue
		}
		row, _, err := s.storedTopic(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted in the meantime
		}
		rows, errs = append(rows, row), append(errs, err)
	}
	slices.SortFunc(rows, func(a, b TopicRow) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(b.Partitions, a.Partitions))
	})
	return rows, errors.Join(errs...)
}

// storedTopic describes one topic as the broker stores it, and returns its groups.
func (s *Survey) storedTopic(ctx context.Context, name string) (row TopicRow, groups []string, err error) {
	row = TopicRow{Topic: name, Groups: backend.Unknown, Depth: backend.Unknown}
	groups, err = s.admin.Groups(ctx, name)
	if err == nil {
		row.Groups = Count(len(groups))
		row.Depth, err = s.depth(ctx, name, groups)
	}
	return row, groups, err
}

// partitionedTopic describes a topic with n partitions: the sum of their depths, and the number of groups that are in
// any of them.
func (s *Survey) partitionedTopic(ctx context.Context, topic string, n int) (TopicRow, error) {
	rows, errs := make([]TopicRow, n), make([]error, n)
	groups := make([][]string, n)
	concurrently(n, func(i int) { rows[i], groups[i], errs[i] = s.storedTopic(ctx, partition.Topic(topic, i)) })
	whole := TopicRow{Topic: topic, Partitions: n}
	in := map[string]bool{}
	for i, row := range rows {
		if errors.Is(errs[i], backend.ErrGone) { // not made yet
			errs[i] = nil
			continue
		}
		whole.Depth = whole.Depth.plus(row.Depth)
		for _, g := range groups[i] {
			in[g] = true
		}
		if !row.Groups.Known() {
			whole.Groups = backend.Unknown
		}
	}
	if whole.Groups.Known() {
		whole.Groups = Count(len(in))
	}
	return whole, errors.Join(errs...)
}

// depth returns the number of kept events, from the stats of any group. Without a group it counts them by reading, up
// to mostCounted and mostCountedBytes.
func (s *Survey) depth(ctx context.Context, topic string, groups []string) (Count, error) {
	for _, g := range groups {
		stats, err := describe(ctx, s.backend, topic, g)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted in the meantime
		}
		if err != nil || stats.Depth.Known() {
			return stats.Depth, err
		}
		break
	}
	n := Count(0)
	all, err := s.read(ctx, topic, mostCounted, mostCountedBytes, func(*backend.Message) { n++ })
	if !all {
		n = backend.Unknown
	}
	return n, err
}

// Groups describes the groups of the named topics, in that order, or all groups. A group of a topic with partitions is
// one row.
func (s *Survey) Groups(ctx context.Context, topics ...string) ([]GroupRow, error) {
	if len(topics) == 0 {
		return s.allGroups(ctx)
	}
	rows := []GroupRow{}
	var errs []error
	for _, topic := range topics {
		n, err := operator.Partitions(ctx, s.backend, topic)
		errs = append(errs, err)
		if n > 0 {
			of, err := s.partitionedGroups(ctx, topic, n)
			rows, errs = append(rows, of...), append(errs, err)
		}
		of, err := s.storedGroups(ctx, topic)
		if n > 0 && errors.Is(err, backend.ErrGone) {
			continue // a topic with partitions has no events outside them
		}
		rows, errs = append(rows, of...), append(errs, err)
	}
	return rows, errors.Join(errs...)
}

func (s *Survey) allGroups(ctx context.Context) ([]GroupRow, error) {
	names, err := s.admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	numbers, err := s.partitionNumbers(ctx, names)
	rows, errs := []GroupRow{}, []error{err}
	for topic, n := range numbers {
		of, err := s.partitionedGroups(ctx, topic, n)
		rows, errs = append(rows, of...), append(errs, err)
	}
	for _, name := range names {
		if isInnerTopic(name, numbers) && !s.Inner {
			continue
		}
		of, err := s.storedGroups(ctx, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted in the meantime
		}
		rows, errs = append(rows, of...), append(errs, err)
	}
	slices.SortStableFunc(rows, func(a, b GroupRow) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(b.Partitions, a.Partitions))
	})
	return rows, errors.Join(errs...)
}

// storedGroups describes the groups of a topic as the broker stores it.
func (s *Survey) storedGroups(ctx context.Context, topic string) (rows []GroupRow, err error) {
	rows, err = s.groupStats(ctx, topic)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	dead, err := s.deadLetters(ctx, topic+LettersSuffix)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].DeadLetters = dead.of(rows[i].Group)
	}
	return rows, nil
}

// partitionedGroups describes the groups of a topic with n partitions, each by the sum over all of them. A group's
// members are those that share the tokens, and its pause is the pause of any partition.
func (s *Survey) partitionedGroups(ctx context.Context, topic string, n int) (rows []GroupRow, err error) {
	dead, err := s.deadLetters(ctx, topic+LettersSuffix)
	if err != nil {
		return nil, err
	}
	parts, errs := make([][]GroupRow, n), make([]error, n)
	concurrently(n, func(i int) {
		if parts[i], errs[i] = s.groupStats(ctx, partition.Topic(topic, i)); errors.Is(errs[i], backend.ErrGone) {
			errs[i] = nil // not made yet
		}
	})
	sums := map[string]*GroupRow{}
	for _, part := range parts {
		for _, g := range part {
			sum := sums[g.Group]
			if sum == nil {
				sums[g.Group] = &GroupRow{Topic: topic, Group: g.Group, Partitions: n, Stats: g.Stats, DeadLetters: dead.of(g.Group), Paused: g.Paused}
				continue
			}
			sum.add(g.Stats)
			sum.Paused = cmp.Or(sum.Paused, g.Paused)
		}
	}
	for _, sum := range sums {
		owners, err := describe(ctx, s.backend, partition.OwnersTopic(topic), sum.Group)
		if err == nil {
			sum.Members = owners.Members
		} else if !errors.Is(err, backend.ErrGone) { // a group of one instance owns nothing
			errs = append(errs, err)
		}
		rows = append(rows, *sum)
	}
	slices.SortFunc(rows, func(a, b GroupRow) int { return strings.Compare(a.Group, b.Group) })
	return rows, errors.Join(errs...)
}

// groupStats describes the groups of a topic as the broker stores it, without their dead letters.
func (s *Survey) groupStats(ctx context.Context, topic string) (rows []GroupRow, err error) {
	names, err := s.admin.Groups(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		stats, err := describe(ctx, s.backend, topic, name)
		if errors.Is(err, backend.ErrGone) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		row := GroupRow{Topic: topic, Group: name, Stats: stats}
		if s.pauser != nil {
			if p, err := pauseOf(ctx, s.pauser, topic, name); err == nil && p != nil {
				row.Paused = &PauseRow{p.Since, p.Until, p.By, p.Why}
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// partitionNumbers returns the number of partitions of each topic with partitions among names.
func (s *Survey) partitionNumbers(ctx context.Context, names []string) (numbers map[string]int, err error) {
	numbers = map[string]int{}
	var errs []error
	for _, topic := range operator.Partitioned(names) {
		n, err := operator.Partitions(ctx, s.backend, topic)
		if errs = append(errs, err); n > 0 {
			numbers[topic] = n
		}
	}
	return numbers, errors.Join(errs...)
}

// isInnerTopic reports whether name is one of the topics that make up a topic with partitions, or the topic of package
// presence. A partition that is out of use is neither.
func isInnerTopic(name string, numbers map[string]int) bool {
	if name == pattern.Presence {
		return true
	}
	n := numbers[partition.Whole(name)]
	_, i, is := partition.Cut(name)
	return n > 0 && (!is || i < n)
}

// The bounds of reading. They are low because all topics of a Survey share one timeout.
const (
	mostCounted      = 1000
	mostCountedBytes = 16 << 20
	mostDead         = 100_000
	mostDeadBytes    = 128 << 20
)

// deadByGroup counts dead letters by the group that failed. It is nil if their numbers are unknown.
type deadByGroup map[string]Count

func (d deadByGroup) of(group string) Count {
	if d == nil {
		return backend.Unknown
	}
	return d[group]
}

// deadLetters counts the letters of a dead-letter topic by reading, up to mostDead and mostDeadBytes, and for at most
// half of the time that ctx leaves.
func (s *Survey) deadLetters(ctx context.Context, topic string) (deadByGroup, error) {
	n := deadByGroup{}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/2, errHalfOfTheTime)
		defer cancel()
	}
	all, err := s.read(ctx, topic, mostDead, mostDeadBytes, func(m *backend.Message) { n[m.Headers.Get(letter.Group)]++ })
	if !all || errors.Is(context.Cause(ctx), errHalfOfTheTime) {
		return nil, err
	}
	return n, err
}

var errHalfOfTheTime = errors.New("half of the time is over")

// read calls do for the events of a topic, and reports whether it has read all of them within the bounds. A topic that
// does not exist has no events.
func (s *Survey) read(ctx context.Context, topic string, limit int, mostBytes int64, do func(*backend.Message)) (all bool, err error) {
	r := &pages.Reader{
		Backend: s.backend, Topic: topic, From: backend.StartEarliest, Timeout: time.Minute, // ctx usually ends before
		Bounds: &pages.Bounds{Calls: limit + 1, Events: limit + 1, Bytes: mostBytes + 1},
	}
	for {
		ms, err := r.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, backend.ErrGone):
			return true, nil
		case errors.Is(err, pages.ErrSpent), errors.Is(err, errors.ErrUnsupported), errors.Is(context.Cause(ctx), errHalfOfTheTime):
			return false, nil
		case err != nil:
			return false, err
		case len(ms) == 0:
			return true, nil
		}
		for i := range ms {
			do(&ms[i])
		}
	}
}

const surveyCalls = 16 // of a Survey at the same time

// concurrently calls f with each number below n, some at the same time.
func concurrently(n int, f func(i int)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, surveyCalls)
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	calls.Wait()
}
