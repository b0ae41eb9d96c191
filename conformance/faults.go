package conformance

import (
	"testing"

	"github.com/seed41896749/eventbus/backend"
)

// Faults are the ways in which the suite can harm the broker or the connections to it. Each
// gets a backend that New or Peer returned, and fails t if it cannot do the harm. If a
// fault returns a function, this function ends the harm. The suite calls it once, at the
// end of the law at the latest.
type Faults struct {
	// These harm the connections of one backend, and no other backend on the broker.

	// Down breaks b's connections and refuses new ones until up is called.
	Down func(t *testing.T, b backend.Backend) (up func())

	// Freeze delays all requests and answers of b until thaw is called. The connections
	// stay open, and nothing gets lost.
	Freeze func(t *testing.T, b backend.Backend) (thaw func())

	// Swallow delivers b's requests and drops all answers until end is called, like a
	// half-open connection. The connections stay open. After end, connections that lost an
	// answer stay dead, and new ones work.
	Swallow func(t *testing.T, b backend.Backend) (end func())

	// Cut breaks b's connections. New ones are let through.
	Cut func(t *testing.T, b backend.Backend)

	// DropReply lets b's next request of this kind take effect, then drops its answer and
	// breaks the connection. DropReply itself returns at once.
	DropReply func(t *testing.T, b backend.Backend, kind Request)

	// These harm the broker of b, and so all its clients. They return when it works again.

	// Restart stops the broker cleanly and starts it again on its data.
	Restart func(t *testing.T, b backend.Backend)

	// Kill ends the broker without warning and starts it again on its data.
	Kill func(t *testing.T, b backend.Backend)

	// Lose removes a message from the broker's storage, held or not. No member is told.
	Lose func(t *testing.T, b backend.Backend, topic, position string)

	// Commands is no fault: it returns the number of requests that b has sent so far.
	Commands func(t *testing.T, b backend.Backend) int64
}

// A Request is a kind of request that a backend sends to its broker.
type Request string

// The kinds of requests whose answers are dropped.
const (
	RequestPublish Request = "publish" // stores messages, with or without Once
	RequestReceive Request = "receive" // leases new or redelivered messages
	RequestAck     Request = "ack"     // removes messages from a group
)
