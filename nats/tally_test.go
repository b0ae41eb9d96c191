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
func newMember(received uint64) *tally {
	t := new(tally)
	t.begin(state(0, 0, 0))
	for i := uint64(1); i <= received; i++ {
		t.held.Add(1)
		t.arrived(meta{delivered: 1, sequence: 1000 + i, number: i}, "")
	}
	return t
}

// A member is alone until there is a sign of another member, and again after calm.
func TestSignsOfAnotherMember(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sees func(*tally)
		is   bool
	}{
		"none":                         {func(*tally) {}, true},
		"lost deliveries":              {func(t *tally) { t.judge(t.now(), state(15, 15, 1), 1) }, true},
		"acknowledgements on the way":  {func(t *tally) { t.judge(t.now(), state(10, 3, 0), 1) }, true},
		"the next number":              {func(t *tally) { t.arrived(meta{1, 1011, 11}, "") }, true},
		"a consumer made anew":         {func(t *tally) { t.arrived(meta{1, 2000, 1}, "") }, true},
		"numbers that do not arrive":   {func(t *tally) { t.arrived(meta{1, 1012, 12}, "") }, false},
		"a waiting pull":               {func(t *tally) { t.judge(t.now(), state(10, 10, 2), 1) }, false},
		"a pending message":            {func(t *tally) { t.judge(t.now(), state(10, 11, 0), 1) }, false},
		"pending when it attached":     {func(t *tally) { t.begin(state(10, 1, 0)) }, false},
		"a pull when it attached":      {func(t *tally) { t.begin(state(10, 0, 1)) }, false},
		"the consumer was deleted":     {(*tally).wiped, false},
		"a sign that is calm long ago": {func(t *tally) { t.company = time.Now().Add(-calm - 1) }, true},
	} {
		m := newMember(10)
		c.sees(m)
		require.Equal(t, c.is, m.now().alone, name)
	}
}

// Each message that the member holds, has given back or has recalled counts once.
func TestTallyCounts(t *testing.T) {
	t.Parallel()
	m := newMember(3)
	r := &receipt{reply: "$JS.ACK.s.c.1.1003.3.0.0"}
	r.until.Store(leases.now() + int64(time.Hour))
	was := r.until.Load()

	m.delay(r, leases.now()+int64(time.Minute))
	require.Equal(t, 3, m.now().pending)
	m.delayedUntil(r, 0, failed)
	require.Equal(t, was, r.until.Load(), "it was not sent")
	require.Equal(t, 3, m.now().pending)

	m.delay(r, leases.now()+int64(time.Minute))
	m.delayedUntil(r, 0, uncertain)
	require.True(t, r.delayable())
	require.False(t, r.held())
	require.Equal(t, []uint64{1003}, m.overdue(false))
	require.Equal(t, 3, m.now().pending)

	m.recalled([]uint64{1003}, 2, 1004, 1010) // two of seven sequences are of the consumer
	require.EqualValues(t, returned, r.until.Load())
	require.Equal(t, 5, m.now().pending)
	require.Len(t, m.overdue(true), 8)

	m.held.Add(1)
	m.arrived(meta{2, 1003, 6}, "")
	m.held.Add(1)
	m.arrived(meta{2, 1005, 7}, "")
	require.Equal(t, 5, m.now().pending)
	m.held.Add(1)
	m.arrived(meta{1, 1011, 8}, "")
	require.Equal(t, 5, m.now().pending, "a new message comes after all that were recalled")
	require.Empty(t, m.overdue(true))

	again := &receipt{reply: "$JS.ACK.s.c.2.1005.7.0.0"}
	again.until.Store(1)
	again.vague.Store(true)
	require.Equal(t, 5, m.now().pending, "it may be pending")
	m.settle(again)
	m.settle(again)
	m.settle(r)
	require.Equal(t, 4, m.now().pending)
}
