package nats

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/natstest"
)

// Where a pull could not be sent, what came before it may not have been either: the
// next begins with a new inbox.
func TestPullThatIsNotSentLeavesItsInbox(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	b, err := Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	attached, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	member := attached.(*source)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical(), typical()}))
	ds, err := member.Receive(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	first := member.pulls.inbox.prefix
	to := member.pulls.inbox.outlet()
	to.turn <- struct{}{} // somebody else writes
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	_, err = member.Receive(ctx, 1)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	to.leave()
	require.Eventually(t, func() bool { // on a busy machine the library has given the connection up meanwhile
		ds, err = member.Receive(t.Context(), 1)
		return err == nil && len(ds) == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.NotEqual(t, first, member.pulls.inbox.prefix)
}
