package conformance

import (
	"testing"

	"github.com/seed41896749/eventbus/backend"
)

// Faults are the functions with which the suite harms the broker or the connections to it.
// Each gets a backend b that New or Peer returned, and fails t if it cannot do the harm. If a
// fault returns a function, that function ends the harm; the suite calls it exactly once,
// before the test ends.
//
// The faults from Down to DropReply harm the connections of b and of no other backend.
// Restart and Kill harm the broker of b, and so all of its clients; they return when the
// broker works again.
type Faults struct {
	// Down breaks b's connections, and refuses new connections until up is called.
	Down func(t *testing.T, b backend.Backend) (up func())

	// Freeze delays all requests and answers of b until thaw is called. The connections
	// stay open, and nothing gets lost.
	Freeze func(t *testing.T, b backend.Backend) (thaw func())

	// Swallow delivers b's requests to the broker and drops all answers until end is
	// called, like a half-open connection. The connections stay open. After end, each
	// connection that lost an answer gets no more answers. New connections work.
	Swallow func(t *testing.T, b backend.Backend) (end func())

	// Cut breaks b's connections. b can open new connections immediately.
	Cut func(t *testing.T, b backend.Backend)

	// DropReply returns immediately. Later, when b sends its next request of this kind, the
	// request takes effect, but its answer is dropped and the connection is broken.
	DropReply func(t *testing.T, b backend.Backend, kind Request)

	// Restart stops the broker cleanly and starts it again on its data.
	Restart func(t *testing.T, b backend.Backend)

	// Kill ends the broker without warning and starts it again on its data.
	Kill func(t *testing.T, b backend.Backend)

	// Lose removes a message from the broker's storage, whether a member holds it or not.
	// Lose does not notify any member.
	Lose func(t *testing.T, b backend.Backend, topic, position string)

	// Commands is not a fault: it returns the number of requests that b has sent so far.
	Commands func(t *testing.T, b backend.Backend) int64
}

// A Request is a kind of request that a backend sends to its broker.
type Request string

// The kinds of requests whose answers [Faults].DropReply can drop.
const (
	RequestPublish Request = "publish" // stores messages, with or without Once
	RequestReceive Request = "receive" // leases new or redelivered messages
	RequestAck     Request = "ack"     // removes messages from a group
)
