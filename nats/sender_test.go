package nats

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// If the connection is lost while the sender sends the messages of a call, the library may
// have a new connection for the next of them. The sender does not use it, because the broker
// would store a message of a key without an earlier one.
func TestNothingIsSentAfterALostConnection(t *testing.T) {
	t.Parallel()
	s := newStage(t).sender
	sent := make(chan error, 2)
	s.do(func() {
		sent <- s.publish(&outgoing{subject: "first"})
		s.status <- natsgo.RECONNECTING
		sent <- s.publish(&outgoing{subject: "second"})
	})
	require.NoError(t, <-sent)
	require.ErrorIs(t, <-sent, errNotConnected)
}
