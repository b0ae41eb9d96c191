package nats

import (
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// A fixture is a server, a backend on it, and a member of a group.
type fixture struct {
	*testing.T
	*Backend
	server *natstest.Server
	member *source
}

func newFixture(t *testing.T) *fixture {
	s := natstest.Start(t)
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	b, err := Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	member, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	return &fixture{t, b, s, member.(*source)}
}

func (s *fixture) publish(n int) {
	ms := make([]*backend.Message, n)
	for i := range ms {
		ms[i] = typical()
	}
	require.NoError(s, s.Publish(s.Context(), ms))
}

func (s *fixture) receive(limit, want int) []backend.Delivery {
	ds, err := s.member.Receive(s.Context(), limit, 0)
	require.NoError(s, err)
	require.Len(s, ds, want, "attempts %v", attempts(ds))
	return slices.Clone(ds) // the next Receive reuses the memory of ds
}

func attempts(ds []backend.Delivery) (all []int) {
	for i := range ds {
		all = append(all, ds[i].Attempt)
	}
	return all
}

// messages returns the number of messages sent so far.
func (s *fixture) messages() uint64 { return s.conn.Stats().OutMsgs }

// hush replaces the server by a listener that accepts connections and stays silent, until
// end is called. The client library waits for it.
func (s *fixture) hush() (end func()) {
	s.server.Kill()
	silent, err := net.Listen("tcp", s.server.Addr())
	require.NoError(s, err)
	greeted, err := silent.Accept()
	require.NoError(s, err)
	return func() {
		require.NoError(s, silent.Close())
		require.NoError(s, greeted.Close())
	}
}
