package deadletter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
)

// positionOf returns the position of an event in the topic orders.
func positionOf(t *testing.T, b backend.Backend, id string) string {
	ms, err := backend.Read(t.Context(), b, "orders", backend.StartEarliest, 1000)
	require.NoError(t, err)
	for i := range ms {
		if ms[i].ID == id {
			return ms[i].Position
		}
	}
	require.Fail(t, "the topic does not have the event", id)
	return ""
}

// An event that an operator buries is a letter like the ones of the bus, and its group is done with it.
func TestBury(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		time.Sleep(time.Millisecond) // it waits for its second attempt
		l, err := s.letters.Bury(t.Context(), deadletter.Burial{Topic: "orders", Group: "billing", Position: positionOf(t, s.Backend(), "1"), By: "ann", Why: "the bank is closed", Error: "charging: card refused", Attempts: 1})
		require.NoError(t, err)
		require.Equal(t, eventbus.DeadLetter{
			Reason: eventbus.ReasonOperator, Error: "charging: card refused; taken away by ann: the bank is closed", Attempts: 1, Topic: "orders", Group: "billing", ID: "1",
			Position: l.Position, LastAttempt: l.LastAttempt,
		}, l.DeadLetter)
		require.WithinDuration(t, time.Now(), l.LastAttempt, 0)
		require.Equal(t, "order 1", string(l.Event.Payload))
		settle()
		require.Equal(t, []string{"1"}, s.ids(t, deadletter.Filter{}), "the event did not fail for good too")
		s.repair()
		report, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 1}, report)
		settle()
		require.Len(t, s.handled["billing"], 1)
		require.Equal(t, "1", s.handled["billing"][0].ID)
	})
}

// Of two burials of one event, one makes a letter.
func TestBuryTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		time.Sleep(time.Millisecond)
		b := deadletter.Burial{Topic: "orders", Group: "billing", Position: positionOf(t, s.Backend(), "1")}
		s.publish(t, "bad", "2") // the topic keeps the first event for the second one
		_, err := s.letters.Bury(t.Context(), b)
		require.NoError(t, err)
		_, err = s.letters.Bury(t.Context(), b)
		require.True(t, errors.Is(err, deadletter.ErrSettled) || errors.Is(err, backend.ErrGone), "%v", err)
		require.Equal(t, []string{"1"}, s.ids(t, deadletter.Filter{}))
		settle()
	})
}

// A message that was redriven is for one group, so it is no event of another.
func TestBuryOfARedrivenEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "bad", "1")
		settle()
		_, err := s.letters.Redrive(t.Context(), deadletter.Redrive{})
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
		ms, err := backend.Read(t.Context(), s.Backend(), "orders", backend.StartEarliest, 10)
		require.NoError(t, err)
		require.Len(t, ms, 1)
		b := deadletter.Burial{Topic: "orders", Group: "mail", Position: ms[0].Position}
		_, err = s.letters.Bury(t.Context(), b)
		require.ErrorIs(t, err, backend.ErrRefused)
		b.Group = "billing"
		l, err := s.letters.Bury(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, "1", l.ID, "the letter is of the event, not of the message")
		require.Equal(t, 1, l.Redriven)
		settle()
	})
}

// An unreachable broker leaves the event where it is, and the error says what is known.
func TestBuryOnABrokenBackend(t *testing.T) {
	memory := inmemory.New(inmemory.Options{})
	defer memory.Close()
	ms := []*backend.Message{{Topic: "orders", ID: "1"}}
	require.NoError(t, memory.Publish(t.Context(), ms))
	src, err := memory.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	_, err = src.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	b := deadletter.Burial{Topic: "orders", Group: "billing", Position: ms[0].Position}
	for _, c := range []struct {
		err     error
		letters int
	}{
		{backend.ErrUnavailable, 0},
		{backend.ErrDenied, 0},
		{backend.ErrUnknownOutcome, 1},
	} {
		letters, err := deadletter.Open(unsettling{memory, c.err}, "orders.dlq")
		require.NoError(t, err)
		_, err = letters.Bury(t.Context(), b)
		require.ErrorIs(t, err, c.err)
		stored, err := backend.Read(t.Context(), memory, "orders.dlq", backend.StartEarliest, 10)
		require.NoError(t, err)
		require.Len(t, stored, c.letters, "%v", c.err)
	}
	without, err := deadletter.Open(struct {
		backend.Backend
		backend.Reader
		backend.Remover
	}{memory, memory, memory}, "orders.dlq")
	require.NoError(t, err)
	_, err = without.Bury(t.Context(), b)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// unsettling is a backend whose Settle fails.
type unsettling struct {
	*inmemory.Backend
	err error
}

func (u unsettling) Settle(context.Context, string, string, string) (bool, error) {
	return false, u.err
}
