package conformance

import (
	"testing"

	"github.com/seed41896749/eventbus/backend"
)

// Faults are ways to do harm. Each gets a backend that New or Peer returned, and reports
// to t if it fails. If a fault returns a function, that ends the harm, and may be called
// twice. When the law ends, the suite calls it for all harm that is left.
type Faults struct {
	// These harm the connections of one backend. Others on the same broker feel
	// nothing of it.

	// Down breaks b's connections and refuses new ones until up is called. For b the
	// broker is down.
	Down func(t *testing.T, b backend.Backend) (up func())

	// Freeze holds up all traffic of b until thaw is called. The connections stay open,
	// and everything arrives after the thaw.
	Freeze func(t *testing.T, b backend.Backend) (thaw func())

	// Swallow lets b's requests arrive and loses all answers until end is called, like a
	// half-open peer. The connections stay open. Connections that lost something stay
	// dead; new ones work.
	Swallow func(t *testing.T, b backend.Backend) (end func())

	// Cut breaks b's connections. New ones are let through.
	Cut func(t *testing.T, b backend.Backend)

	// DropReply lets b's next request of this kind take effect, and loses its answer and
	// the connection. It returns at once.
	DropReply func(t *testing.T, b backend.Backend, kind Request)

	// These harm the broker of b, and so every client of it. They return when the broker
	// works again.

	// Restart stops the broker in good order and starts it again on its data.
	Restart func(t *testing.T, b backend.Backend)

	// Kill ends the broker without a warning and starts it again on its data.
	Kill func(t *testing.T, b backend.Backend)

	// Lose removes a stored message from the broker without the knowledge of members,
	// whether it is unread or held.
	Lose func(t *testing.T, b backend.Backend, topic, position string)

	// Commands is not a fault but a count: the requests that b has sent so far.
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
