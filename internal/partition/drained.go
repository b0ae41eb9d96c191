package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/each"
)

// A BusyError says why the number of partitions cannot be changed now.
type BusyError struct {
	Topic string

	Members []Member // that live
	Group   string   // that is not ready
	Events  int64    // that it has not settled; Unknown: the backend cannot tell
	Owned   []int    // partitions whose tokens it has leased
}

// Error says what to do.
func (e *BusyError) Error() string {
	switch {
	case len(e.Members) > 0:
		var names []string
		for _, m := range e.Members {
			names = append(names, fmt.Sprintf("%q of %s", m.Name, m.Group))
		}
		return fmt.Sprintf("%s has members: stop %s", e.Topic, strings.Join(names, ", "))
	case len(e.Owned) > 0:
		return fmt.Sprintf("a member of %s owns the partitions %s of %s, or was killed a moment ago: stop it, and wait for the end of its leases", e.Group, Ranges(e.Owned), e.Topic)
	case e.Events == backend.Unknown:
		return fmt.Sprintf("the backend does not know whether %s has settled all events of %s: let its members settle the rest", e.Group, e.Topic)
	}
	return fmt.Sprintf("%s has not settled %d events of %s: let its members settle them, or eventbus groups reset it in each partition", e.Group, e.Events, e.Topic)
}

// survey lists the partitions and groups, and counts the events that a change would lose. It returns a
// *BusyError if a group has not settled all events or, before the mark, a member lives.
func (w *changing) survey(ctx context.Context) error {
	if w.began.IsZero() && w.before != w.Number {
		if err := w.call(ctx); err != nil {
			return err
		}
	}
	if err := w.list(ctx); err != nil {
		return err
	}
	groups, left, loss, err := w.count(ctx)
	if err != nil {
		return err
	}
	w.sharing, err = w.admin.Groups(ctx, OwnersTopic(w.Topic))
	if gone(err) != nil {
		return err
	}
	w.groups, w.loss = nil, loss
	for _, group := range append(groups, w.sharing...) {
		if each.Label(group) == group { // a group of one instance ends with it
			w.groups = append(w.groups, group)
		}
	}
	slices.Sort(w.groups)
	w.groups = slices.Compact(w.groups)
	for _, group := range slices.Sorted(maps.Keys(left)) {
		if left[group] != 0 {
			return &BusyError{Topic: w.Topic, Group: group, Events: left[group]}
		}
	}
	return nil
}

// count asks all partitions for their groups, how many events each of them has not settled, and
// which other events a change would lose.
func (w *changing) count(ctx context.Context) (groups []string, left map[string]int64, loss Loss, err error) {
	var mu sync.Mutex
	left = map[string]int64{}
	err = concurrently(0, len(w.parts), func(i int) error {
		names, err := w.admin.Groups(ctx, w.parts[i])
		if err != nil {
			return gone(err)
		}
		for _, group := range names {
			n, err := w.unsettled(ctx, w.parts[i], group)
			if err != nil {
				return err
			}
			mu.Lock()
			groups, left[group] = append(groups, group), plus(left[group], n)
			mu.Unlock()
		}
		kept, err := w.kept(ctx, w.parts[i], names)
		mu.Lock()
		defer mu.Unlock()
		if _, number, _ := Cut(w.parts[i]); number >= w.Number {
			loss.Deleted = plus(loss.Deleted, kept)
		} else {
			loss.Mixed = plus(loss.Mixed, kept)
		}
		return err
	})
	return groups, left, loss, err
}

// call looks for living members.
func (w *changing) call(ctx context.Context) error {
	all, err := Members(ctx, w.Backend, w.Topic)
	if err != nil {
		return err
	}
	live := slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return !m.Lives })
	if len(live) > 0 {
		return &BusyError{Topic: w.Topic, Members: live}
	}
	w.notes = all
	return nil
}

// list lists the partitions that exist. A list of a cluster may miss new ones, so all that are in use
// are in it.
func (w *changing) list(ctx context.Context) error {
	names, err := w.admin.Topics(ctx)
	if err != nil {
		return err
	}
	w.parts = nil
	if w.before != w.Number { // otherwise only the others matter
		for i := range w.before {
			w.parts = append(w.parts, Topic(w.Topic, i))
		}
	}
	for _, name := range names {
		if topic, i, ok := Cut(name); ok && topic == w.Topic && i >= w.before {
			w.parts = append(w.parts, name)
		}
	}
	return nil
}

// unsettled returns how many events of a partition a group has not settled.
func (w *changing) unsettled(ctx context.Context, name, group string) (int64, error) {
	s, err := backend.StatsOf(ctx, w.Backend, name, group)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return backend.Unknown, nil
	case err != nil:
		return 0, gone(err)
	}
	return plus(s.Lag, s.Unacked), nil
}

// kept returns how many events a partition has although all of groups have settled them. Without
// groups these are all events. Settled events that the topic does not keep do not count.
func (w *changing) kept(ctx context.Context, name string, groups []string) (n int64, err error) {
	if len(groups) > 0 {
		settings, err := w.settings(ctx, name)
		if err != nil || settings.Keep == 0 {
			return 0, err
		}
		s, err := backend.StatsOf(ctx, w.Backend, name, groups[0])
		return s.Depth, gone(err)
	}
	for from := backend.StartEarliest; n < mostCounted; {
		ms, err := backend.Read(ctx, w.Backend, name, from, 256)
		if err != nil || len(ms) == 0 {
			return n, gone(err)
		}
		n += int64(len(ms))
		from = backend.StartAfter(strings.Clone(ms[len(ms)-1].Position))
	}
	return backend.Unknown, nil
}

const mostCounted = 10_000 // events of one partition, by reading

// settings returns the settings of a partition. It makes the partition if it does not exist.
func (w *changing) settings(ctx context.Context, name string) (backend.TopicSettings, error) {
	settings, err := backend.Declare(ctx, w.Backend, name, backend.Declaration{})
	if errors.Is(err, errors.ErrUnsupported) {
		return backend.TopicSettings{}, nil
	}
	return settings, err
}

// concurrently calls f with the numbers from from to to-1, some at the same time, and returns an error
// of them.
func concurrently(from, to int, f func(i int) error) error {
	var calls sync.WaitGroup
	turns, errs := make(chan struct{}, atOnce), make([]error, max(to-from, 0))
	for i := from; i < to; i++ {
		turns <- struct{}{}
		calls.Go(func() {
			defer func() { <-turns }()
			errs[i-from] = f(i)
		})
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return err // many would say the same
		}
	}
	return nil
}

const atOnce = 16 // calls to the backend at the same time

// plus adds two numbers of events, each of which may be Unknown.
func plus(a, b int64) int64 {
	if a == backend.Unknown || b == backend.Unknown {
		return backend.Unknown
	}
	return a + b
}
