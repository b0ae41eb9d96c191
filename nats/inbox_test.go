package nats

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where a pull could not be sent, what came before it may not have been either: the
// next begins with a new inbox.
func TestPullThatIsNotSentLeavesItsInbox(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(2)
	s.receive(1, 1)
	first := s.member.pulls.inbox
	to := first.outlet()
	to.turn <- struct{}{} // somebody else writes
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	received := make(chan error, 1)
	go func() {
		_, err := s.member.Receive(ctx, 1)
		received <- err
	}()
	left := func() bool { return first.box.outlet.Load() == nil }
	require.Eventually(t, left, 10*time.Second, time.Millisecond)
	to.leave() // before the client library is told, which writes as well, and gives up in two seconds
	require.ErrorIs(t, <-received, context.DeadlineExceeded)
	s.receive(1, 1)
	require.NotEqual(t, first.prefix, s.member.pulls.inbox.prefix)
}
