package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A shop is a bus. Its groups fail events of type "bad" until the test repairs the group.
type shop struct {
	*eventbus.Bus
	letters *deadletter.Topic

	mu       sync.Mutex
	repaired bool
	handled  map[string][]eventbus.Delivery // by group
}

var errCard = errors.New("card refused")

func open(t *testing.T, groups ...string) *shop {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
	require.NoError(t, err)
	letters, err := deadletter.Open(bus.Backend(), "orders.dlq")
	require.NoError(t, err)
	s := &shop{Bus: bus, letters: letters, handled: map[string][]eventbus.Delivery{}}
	for _, g := range groups {
		s.join(t, g)
	}
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.Background())) }) //nolint:usetesting // its context has ended
	return s
}

func (s *shop) join(t *testing.T, group string) {
	o := eventbus.SubscribeOptions{Group: group, Retry: eventbus.Retry{MaxAttempts: 2, Initial: time.Second, Jitter: -1}}
	_, err := s.Subscribe(t.Context(), "orders", o, func(_ context.Context, d *eventbus.Delivery) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.repaired || d.Type == "good":
		case d.Type == "permanent":
			return eventbus.Permanent(errCard)
		case d.Type == "panics":
			panic("out of stock")
		default:
			return fmt.Errorf("charging: %w", errCard)
		}
		s.handled[group] = append(s.handled[group], *d)
		return nil
	})
	require.NoError(t, err)
}

func (s *shop) repair() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repaired = true
}

func (s *shop) publish(t *testing.T, kind string, ids ...string) {
	for _, id := range ids {
		e := &eventbus.Event{
			ID: id, Type: kind, Key: "k-" + id, Subject: "s", ContentType: "text/plain", Payload: []byte("order " + id),
			Headers: eventbus.Headers{{Name: "region", Value: "north"}}, Time: time.Now().Add(-time.Hour),
		}
		require.NoError(t, s.Publish(t.Context(), "orders", e))
	}
}

func (s *shop) ids(t *testing.T, f deadletter.Filter) (ids []string) {
	for l, err := range s.letters.All(t.Context(), f) {
		require.NoError(t, err)
		ids = append(ids, l.ID)
	}
	return ids
}

func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

func TestLettersHaveTheEventAndTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		for l, err := range s.letters.All(t.Context(), deadletter.Filter{}) {
			require.NoError(t, err)
			require.Equal(t, eventbus.DeadLetter{
				Reason: eventbus.ReasonExhausted, Error: "charging: card refused", ErrorClass: "*errors.errorString", Attempts: 2,
				Topic: "orders", Group: "billing", ID: "1", Position: l.Position, LastAttempt: l.LastAttempt,
			}, l.DeadLetter)
			require.Equal(t, "order 1", string(l.Event.Payload))
			require.Equal(t, eventbus.Headers{{Name: "region", Value: "north"}}, l.Event.Headers)
			require.Equal(t, "1 bad k-1 s text/plain", fmt.Sprint(l.Event.ID, " ", l.Event.Type, " ", l.Event.Key, " ", l.Event.Subject, " ", l.Event.ContentType))
		}
		require.Equal(t, []string{"1"}, s.ids(t, deadletter.Filter{}))
	})
}

func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing", "mail")
		s.publish(t, "bad", "1")
		settle()
		between := time.Now()
		s.publish(t, "permanent", "2")
		s.publish(t, "panics", "3")
		settle()
		place := ""
		for l, err := range s.letters.All(t.Context(), deadletter.Filter{ID: "2"}) {
			require.NoError(t, err)
			place = l.Place
		}
		for name, c := range map[string]struct {
			f    deadletter.Filter
			want []string
		}{
			"all":         {deadletter.Filter{}, []string{"1", "1", "2", "2", "3", "3"}},
			"group":       {deadletter.Filter{Group: "mail"}, []string{"1", "2", "3"}},
			"no group":    {deadletter.Filter{Group: "unknown"}, nil},
			"topic":       {deadletter.Filter{Topic: "other"}, nil},
			"reason":      {deadletter.Filter{Reason: eventbus.ReasonPermanent}, []string{"2", "2"}},
			"error class": {deadletter.Filter{ErrorClass: "panic"}, []string{"3", "3"}},
			"type":        {deadletter.Filter{Type: "bad"}, []string{"1", "1"}},
			"id":          {deadletter.Filter{ID: "3"}, []string{"3", "3"}},
			"key":         {deadletter.Filter{Key: "k-3", Group: "mail"}, []string{"3"}},
			"place":       {deadletter.Filter{Place: place}, []string{"2"}},
			"since":       {deadletter.Filter{Since: between}, []string{"2", "2", "3", "3"}},
			"before":      {deadletter.Filter{Before: between}, []string{"1", "1"}},
			"match":       {deadletter.Filter{Match: func(l *deadletter.Letter) bool { return l.Attempts == 1 }}, []string{"2", "2"}},
		} {
			got := s.ids(t, c.f)
			slices.Sort(got)
			require.Equal(t, c.want, got, name)
		}
	})
}

func TestClassesCountLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "permanent", "1", "2", "3")
		s.publish(t, "panics", "4")
		settle()
		classes, err := s.letters.Classes(t.Context(), deadletter.Filter{})
		require.NoError(t, err)
		require.Len(t, classes, 2)
		require.Equal(t, deadletter.Class{
			Topic: "orders", Group: "billing", Reason: eventbus.ReasonPermanent, ErrorClass: "*errors.errorString", Type: "permanent",
			Letters: 3, Oldest: classes[0].Oldest, Newest: classes[0].Newest, Error: "card refused",
		}, classes[0])
		require.Equal(t, 1, classes[1].Letters)
		require.Equal(t, "panic", classes[1].ErrorClass)
	})
}

// noRemove is a backend whose Remove never reaches the broker.
type noRemove struct{ backend.Backend }

func (b noRemove) Unwrap() backend.Backend { return b.Backend }

func (noRemove) Remove(context.Context, string, []string) error { return backend.ErrUnavailable }

func TestDiscardAndTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		for i := range 250 {
			s.publish(t, "permanent", fmt.Sprintf("%03d", i))
		}
		s.publish(t, "panics", "250")
		settle()
		n, err := s.letters.Trim(t.Context(), deadletter.Filter{Type: "permanent"}, deadletter.Bounds{Letters: 120})
		require.NoError(t, err)
		require.Equal(t, 130, n)
		left := s.ids(t, deadletter.Filter{Type: "permanent"})
		require.Equal(t, "130", left[0])
		require.Len(t, left, 120)
		n, err = s.letters.Discard(t.Context(), deadletter.Filter{Reason: eventbus.ReasonPermanent})
		require.NoError(t, err)
		require.Equal(t, 120, n)
		require.Equal(t, []string{"250"}, s.ids(t, deadletter.Filter{}))
	})
}

// A letter is removed that is outside one bound, although it is within the others.
func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		bounds deadletter.Bounds
		left   []string
	}{
		"none":         {deadletter.Bounds{}, []string{"0", "1", "2", "3"}},
		"age":          {deadletter.Bounds{Age: 30 * time.Hour}, []string{"2", "3"}},
		"age, letters": {deadletter.Bounds{Age: 30 * time.Hour, Letters: 3}, []string{"2", "3"}},
		"letters, age": {deadletter.Bounds{Age: 30 * time.Hour, Letters: 1}, []string{"3"}},
		"bytes":        {deadletter.Bounds{Bytes: 210_000, Age: 1000 * time.Hour}, []string{"2", "3"}},
		"few bytes":    {deadletter.Bounds{Bytes: 1, Letters: 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, "billing")
				for i := range 4 {
					if i > 0 {
						time.Sleep(20 * time.Hour)
					}
					require.NoError(t, s.Publish(t.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(i), Type: "permanent", Payload: make([]byte, 100_000)}))
					settle()
				}
				n, err := s.letters.Trim(t.Context(), deadletter.Filter{}, c.bounds)
				require.NoError(t, err)
				require.Equal(t, c.left, s.ids(t, deadletter.Filter{}))
				require.Equal(t, 4-len(c.left), n)
			})
		})
	}
}

func TestOpenNeedsVerbs(t *testing.T) {
	b := struct{ backend.Backend }{inmemory.New(inmemory.Options{})}
	_, err := deadletter.Open(b, "orders.dlq")
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = deadletter.Open(b, "no spaces")
	require.ErrorContains(t, err, "topic")
}

// The LastAttempt of a letter without a run is the time at which it was stored. Redrive
// leaves letters of events that it has redriven, so it ends though each fails again at once.
func TestLettersWithoutARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		_, err := s.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", MaxReceive: 1}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for i := range 250 {
			s.publish(t, "large", fmt.Sprintf("%03d", i))
		}
		settle()
		n, err := s.letters.Discard(t.Context(), deadletter.Filter{Before: time.Now().Add(-time.Hour)})
		require.NoError(t, err)
		require.Zero(t, n, "young letters were taken for old ones")
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{MaxRedrives: -1, Rate: 10})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 250}, report)
		settle()
		require.Len(t, s.ids(t, deadletter.Filter{}), 250)
	})
}

// Several programs may trim a topic at once.
func TestTrimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		for i := range 50 {
			s.publish(t, "permanent", fmt.Sprintf("%03d", i))
		}
		settle()
		slow := 0
		_, err := s.letters.Trim(t.Context(), deadletter.Filter{Match: func(*deadletter.Letter) bool {
			if slow++; slow == 51 { // the slow Trim has counted: now another program trims
				_, err := s.letters.Trim(t.Context(), deadletter.Filter{}, deadletter.Bounds{Letters: 20})
				require.NoError(t, err)
			}
			return true
		}}, deadletter.Bounds{Letters: 20})
		require.NoError(t, err)
		require.Len(t, s.ids(t, deadletter.Filter{}), 20)
	})
}
