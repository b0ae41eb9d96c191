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
	first := s.member.pulls.inbox.prefix
	to := s.member.pulls.inbox.outlet()
	to.turn <- struct{}{} // somebody else writes
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	_, err := s.member.Receive(ctx, 1)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	to.leave()
	s.receive(1, 1)
	require.NotEqual(t, first, s.member.pulls.inbox.prefix)
}
