package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	mu      sync.Mutex
	mended  bool
	handled map[string][]eventbus.Delivery // by group
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
		case s.mended || d.Type == "good":
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

func (s *shop) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mended = true
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

// A redriven event is delivered to the group that failed, as it was first published and
// with new attempts, and to no other group. Its letter is removed.
func TestRedriveReachesTheFailedGroupAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2")
		settle()
		s.join(t, "mail") // it may start with the topic's oldest event, but none is kept
		s.mend()
		s.publish(t, "good", "3")
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{Filter: deadletter.Filter{Group: "billing"}})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 2}, report)
		settle()
		require.Empty(t, s.ids(t, deadletter.Filter{}))
		require.Len(t, s.handled["mail"], 1, "another group saw a redriven event")
		got := s.handled["billing"][1:] // the first is 3
		require.Len(t, got, 2)
		for i, d := range got {
			id := fmt.Sprint(i + 1)
			require.Equal(t, eventbus.Delivery{
				Topic: "orders", Group: "billing", Attempt: 1, MaxAttempts: 2,
				Event: eventbus.Event{
					ID: id, Type: "bad", Key: "k-" + id, Subject: "s", ContentType: "text/plain", Payload: []byte("order " + id),
					Headers: eventbus.Headers{{Name: "region", Value: "north"}}, Time: d.Time, Position: d.Position,
				},
			}, d)
		}
	})
}

// An event that fails again becomes a letter again. The third redrive is the last.
func TestRedriveEndsLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		for n := range 3 {
			report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
			require.NoError(t, err)
			require.Equal(t, deadletter.Report{Redriven: 1}, report)
			settle()
			for l, err := range s.letters.All(t.Context(), deadletter.Filter{}) {
				require.NoError(t, err)
				require.Equal(t, n+1, l.Redriven)
				require.Equal(t, "1", l.ID)
				require.Equal(t, "1", l.Event.ID)
			}
		}
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Looping: 1}, report)
		require.Equal(t, []string{"1"}, s.ids(t, deadletter.Filter{}))
		report, err = s.letters.Redrive(t.Context(), deadletter.Redrive{MaxRedrives: -1})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 1}, report)
	})
}

func TestRedriveOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2", "3", "4", "5", "6")
		settle()
		s.mend()
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 6}, report)
		require.Len(t, s.ids(t, deadletter.Filter{}), 6, "a dry run changed something")

		start := time.Now()
		var told []int
		report, err = s.letters.Redrive(t.Context(), deadletter.Redrive{
			Limit: 4, Rate: 0.5, Progress: func(r deadletter.Report) { told = append(told, r.Redriven) },
		})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 4}, report)
		require.Equal(t, []int{1, 2, 3, 4}, told)
		require.Equal(t, 6*time.Second, time.Since(start), "four letters, one each two seconds")
		require.Equal(t, []string{"5", "6"}, s.ids(t, deadletter.Filter{}))

		report, err = s.letters.Redrive(t.Context(), deadletter.Redrive{Edit: func(m *backend.Message, why *deadletter.Letter) error {
			if why.ID == "5" {
				return errors.New("not this one")
			}
			m.Payload = []byte("mended")
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, 1, report.Redriven)
		require.Equal(t, 1, report.Refused)
		require.ErrorContains(t, report.Err, "not this one")
		settle()
		require.Equal(t, "mended", string(s.handled["billing"][4].Payload))
		require.Equal(t, []string{"5"}, s.ids(t, deadletter.Filter{}))
	})
}

func TestRedriveSkipsDeletedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		admin, _ := backend.As[backend.Admin](s.Backend())
		require.NoError(t, admin.DeleteGroup(t.Context(), "orders", "billing"))
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{NoGroup: 1}, report)
	})
}

// A Redrive that ends between its two steps, as by a kill, stores no event twice.
func TestRedriveAgainAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2", "3")
		settle()
		s.mend()
		killed, err := deadletter.Open(noRemove{s.Backend()}, "orders.dlq")
		require.NoError(t, err)
		_, err = killed.Redrive(t.Context(), deadletter.Redrive{})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 3}, report)
		settle()
		require.Len(t, s.handled["billing"], 3, "events were stored twice")
		require.Empty(t, s.ids(t, deadletter.Filter{}))
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
		n, err := s.letters.Trim(t.Context(), deadletter.Filter{Type: "permanent"}, 120)
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

// An Edit that replaces all headers does not send the event to other groups.
func TestEditKeepsTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		s.join(t, "mail")
		s.mend()
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{Edit: func(m *backend.Message, _ *deadletter.Letter) error {
			m.Topic, m.ID, m.Once, m.Headers = "elsewhere", "other", false, backend.Headers{{Name: "h", Value: "v"}}
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 1}, report)
		settle()
		require.Empty(t, s.handled["mail"])
		require.Len(t, s.handled["billing"], 1)
		require.Equal(t, "1", s.handled["billing"][0].ID)
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
				_, err := s.letters.Trim(t.Context(), deadletter.Filter{}, 20)
				require.NoError(t, err)
			}
			return true
		}}, 20)
		require.NoError(t, err)
		require.Len(t, s.ids(t, deadletter.Filter{}), 20)
	})
}

// A redriven event has every byte of its original ID.
func TestRedriveKeepsTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "permanent", " e 1 ", "  ")
		settle()
		s.mend()
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{Filter: deadletter.Filter{ID: " e 1 "}})
		require.NoError(t, err)
		require.Equal(t, 1, report.Redriven)
		_, err = s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		settle()
		var ids []string
		for _, d := range s.handled["billing"] {
			ids = append(ids, d.ID)
		}
		require.Equal(t, []string{" e 1 ", "  "}, ids)
	})
}

// threes is a backend that stores at most three messages in one call.
type threes struct{ *inmemory.Backend }

func (b threes) Limits() backend.Limits {
	l := b.Backend.Limits()
	l.Batch = 3
	return l
}

func (b threes) Publish(ctx context.Context, ms []*backend.Message) error {
	if len(ms) > 3 {
		return backend.ErrRefused
	}
	return b.Backend.Publish(ctx, ms)
}

// Redrive keeps to the limits of the backend, to the deadline of its context, and counts
// letters of topics that cannot exist.
func TestRedriveKeepsToLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := threes{inmemory.New(inmemory.Options{})}
		_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute})
		require.NoError(t, err)
		for i := range 10 {
			topic := "orders"
			if i == 4 {
				topic = "no topic!"
			}
			m := &backend.Message{Topic: "orders.dlq", ID: fmt.Sprint(i), Headers: backend.Headers{
				{Name: "eventbus-dead-reason", Value: "permanent"},
				{Name: "eventbus-dead-topic", Value: topic},
				{Name: "eventbus-dead-group", Value: "g"},
				{Name: "eventbus-dead-id", Value: fmt.Sprint(i)},
			}}
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		}
		letters, err := deadletter.Open(b, "orders.dlq")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		report, err := letters.Redrive(ctx, deadletter.Redrive{Rate: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3, report.Redriven)
		report, err = letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, 6, report.Redriven)
		require.Equal(t, 1, report.NoGroup)
		require.NoError(t, b.Close())
	})
}

// cancelling ends a context as soon as it has stored messages.
type cancelling struct {
	*inmemory.Backend
	cancel context.CancelFunc
}

func (b cancelling) Publish(ctx context.Context, ms []*backend.Message) error {
	err := b.Backend.Publish(ctx, ms)
	b.cancel()
	return err
}

func (b cancelling) Remove(ctx context.Context, topic string, positions []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Backend.Remove(ctx, topic, positions)
}

// A Redrive that is interrupted removes the letters whose events it has stored. Otherwise a
// later call could store them twice.
func TestInterruptedRedriveRemovesItsLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "a", "b")
		settle()
		s.mend()
		ctx, cancel := context.WithCancel(t.Context())
		letters, err := deadletter.Open(cancelling{s.Backend().(*inmemory.Backend), cancel}, "orders.dlq")
		require.NoError(t, err)
		_, err = letters.Redrive(ctx, deadletter.Redrive{})
		require.NoError(t, err)
		require.Empty(t, s.ids(t, deadletter.Filter{}))
		settle()
		require.Len(t, s.handled["billing"], 2)
	})
}
