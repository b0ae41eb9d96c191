package nats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// state returns the state of a consumer that has made deliveries, of which some are pending.
func state(deliveries, pending uint64, waiting int) *jetstream.ConsumerInfo {
	c := &jetstream.ConsumerInfo{NumAckPending: int(pending), NumWaiting: waiting}
	c.Delivered.Consumer, c.Delivered.Stream = deliveries, 1000+deliveries
	return c
}

// newMember returns the tally of a member that has received a number of deliveries and
// holds them.
func newMember(received uint64) *tracker {
	t := new(tracker)
	t.init(state(0, 0, 0))
	for i := uint64(1); i <= received; i++ {
		t.held.Add(1)
		t.arrived(deliveryMeta{delivered: 1, sequence: 1000 + i, number: i}, "")
	}
	return t
}

// A member is alone until there is a sign of another member, and again after calm.
func TestSignsOfAnotherMember(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sees func(*tracker)
		is   bool
	}{
		"none":                         {func(*tracker) {}, true},
		"lost deliveries":              {func(t *tracker) { t.compare(t.snapshot(), state(15, 15, 1), 1) }, true},
		"acknowledgements on the way":  {func(t *tracker) { t.compare(t.snapshot(), state(10, 3, 0), 1) }, true},
		"the next number":              {func(t *tracker) { t.arrived(deliveryMeta{1, 1011, 11}, "") }, true},
		"a consumer made anew":         {func(t *tracker) { t.arrived(deliveryMeta{1, 2000, 1}, "") }, true},
		"numbers that do not arrive":   {func(t *tracker) { t.arrived(deliveryMeta{1, 1012, 12}, "") }, false},
		"a waiting pull":               {func(t *tracker) { t.compare(t.snapshot(), state(10, 10, 2), 1) }, false},
		"a pending message":            {func(t *tracker) { t.compare(t.snapshot(), state(10, 11, 0), 1) }, false},
		"pending when it attached":     {func(t *tracker) { t.init(state(10, 1, 0)) }, false},
		"a pull when it attached":      {func(t *tracker) { t.init(state(10, 0, 1)) }, false},
		"the consumer was deleted":     {(*tracker).reset, false},
		"a sign that is calm long ago": {func(t *tracker) { t.lastSign = time.Now().Add(-aloneAfter - 1) }, true},
	} {
		m := newMember(10)
		c.sees(m)
		require.Equal(t, c.is, m.snapshot().alone, name)
	}
}

// Each message that the member holds, has given back or has recalled counts once.
func TestTallyCounts(t *testing.T) {
	t.Parallel()
	m := newMember(3)
	tok := &token{reply: "$JS.ACK.s.c.1.1003.3.0.0"}
	tok.until.Store(leaseClock.now() + int64(time.Hour))
	was := tok.until.Load()

	m.startDelay(tok, leaseClock.now()+int64(time.Minute))
	require.Equal(t, 3, m.snapshot().pending)
	m.endDelay(tok, 0, outcomeFailed)
	require.Equal(t, was, tok.until.Load(), "it was not sent")
	require.Equal(t, 3, m.snapshot().pending)

	m.startDelay(tok, leaseClock.now()+int64(time.Minute))
	m.endDelay(tok, 0, outcomeUncertain)
	require.True(t, tok.delayable())
	require.False(t, tok.held())
	require.Equal(t, []uint64{1003}, m.overdue(false))
	require.Equal(t, 3, m.snapshot().pending)

	m.recalled([]uint64{1003}, 2, 1004, 1010) // two of seven sequences are of the consumer
	require.EqualValues(t, untilGivenBack, tok.until.Load())
	require.Equal(t, 5, m.snapshot().pending)
	require.Len(t, m.overdue(true), 8)

	m.held.Add(1)
	m.arrived(deliveryMeta{2, 1003, 6}, "")
	m.held.Add(1)
	m.arrived(deliveryMeta{2, 1005, 7}, "")
	require.Equal(t, 5, m.snapshot().pending)
	m.held.Add(1)
	m.arrived(deliveryMeta{1, 1011, 8}, "")
	require.Equal(t, 5, m.snapshot().pending, "a new message comes after all that were recalled")
	require.Empty(t, m.overdue(true))

	again := &token{reply: "$JS.ACK.s.c.2.1005.7.0.0"}
	again.until.Store(1)
	again.ackUncertain.Store(true)
	require.Equal(t, 5, m.snapshot().pending, "it may be pending")
	m.settled(again)
	m.settled(again)
	m.settled(tok)
	require.Equal(t, 4, m.snapshot().pending)
}
