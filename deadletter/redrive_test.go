package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
)

// A redriven event is delivered to the group that failed, as it was first published and
// with new attempts, and to no other group. Its letter is removed.
func TestRedriveReachesTheFailedGroupAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2")
		settle()
		s.join(t, "mail") // it may start with the topic's oldest event, but none is kept
		s.repair()
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
				Topic: "orders", Group: "billing", Attempt: 1, MaxAttempts: 2, Redelivered: true,
				Event: eventbus.Event{
					ID: id, Type: "bad", Key: "k-" + id, Subject: "s", ContentType: "text/plain", Payload: []byte("order " + id),
					Headers: eventbus.Headers{{Name: "region", Value: "north"}}, Source: "deadletter.test", Time: d.Time, Position: d.Position,
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
		s.repair()
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
			m.Payload = []byte("repaired")
			return nil
		}})
		require.NoError(t, err)
		require.Equal(t, 1, report.Redriven)
		require.Equal(t, 1, report.Refused)
		require.ErrorContains(t, report.Err, "not this one")
		settle()
		require.Equal(t, "repaired", string(s.handled["billing"][4].Payload))
		require.Equal(t, []string{"5"}, s.ids(t, deadletter.Filter{}))
	})
}

func TestRedriveSkipsDeletedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		for _, member := range s.Subscriptions() {
			require.NoError(t, member.Drain(t.Context())) // otherwise it may create the group again before the redrive looks
		}
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
		s.repair()
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

// An Edit that replaces all headers does not send the event to other groups.
func TestEditKeepsTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		s.join(t, "mail")
		s.repair()
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

// A redriven event has every byte of its original ID.
func TestRedriveKeepsTheID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "permanent", " e 1 ", "  ")
		settle()
		s.repair()
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

// Rate holds at each moment: time that passes without letters is not made up for. After the
// last letter Redrive does not wait.
func TestRateAfterOtherLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2", "3", "4")
		settle()
		s.repair()
		var at []time.Duration
		start := time.Now()
		_, err := s.letters.Redrive(t.Context(), deadletter.Redrive{Rate: 1, Progress: func(r deadletter.Report) {
			if at = append(at, time.Since(start)); len(at) == 1 {
				time.Sleep(10 * time.Second)
			}
		}})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, 10 * time.Second, 11 * time.Second, 12 * time.Second}, at)
		require.Equal(t, 12*time.Second, time.Since(start))
	})
}

// With Rate, Redrive does not redrive a letter that another call has removed in the meantime.
func TestRedriveAtARateBesideDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2", "3", "4")
		settle()
		s.repair()
		time.AfterFunc(3*time.Second, func() {
			_, err := s.letters.Discard(t.Context(), deadletter.Filter{})
			assert.NoError(t, err)
		})
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{Rate: 0.5})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 2}, report)
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
		s.repair()
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

// A keeping backend cannot remove messages.
type keeping struct{ backend.Backend }

func (k keeping) Unwrap() backend.Backend { return k.Backend }

func (keeping) Remove(context.Context, string, []string) error { return errors.New("not now") }

// The report counts no letter that is still there.
func TestReportCountsOnlyLettersThatAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		letters, err := deadletter.Open(keeping{s.Backend()}, "orders.dlq")
		require.NoError(t, err)
		report, err := letters.Redrive(t.Context(), deadletter.Redrive{})
		require.ErrorContains(t, err, "not now")
		require.Zero(t, report.Redriven)
	})
}

// Progress is called after each batch, even if Edit refuses all of it.
func TestProgressIsToldOfRefusedLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1", "2")
		settle()
		var told []deadletter.Report
		_, err := s.letters.Redrive(t.Context(), deadletter.Redrive{
			Edit:     func(*backend.Message, *deadletter.Letter) error { return errors.New("no") },
			Progress: func(r deadletter.Report) { told = append(told, r) },
		})
		require.NoError(t, err)
		require.Len(t, told, 1)
		require.Equal(t, 2, told[0].Refused)
	})
}
