package conformance

import (
	"testing"

	"github.com/seed41896749/eventbus/backend"
)

// Faults are ways to do harm. Each gets a backend that New or Peer returned and
// reports to t what keeps it from doing so. A function that it returns ends the
// harm, and may be called twice; what is still harmed when the law ends, the
// suite ends.
type Faults struct {
	// These harm the connections of one backend. Others on the same broker feel
	// nothing of it.

	// Down breaks b's connections and refuses new ones, until up is called: to
	// b the broker is down.
	Down func(t *testing.T, b backend.Backend) (up func())

	// Freeze holds up all that b sends and is sent, its connections open, until
	// thaw is called. Then everything arrives after all.
	Freeze func(t *testing.T, b backend.Backend) (thaw func())

	// Swallow lets what b sends arrive and all answers get lost, its connections
	// open, until end is called: a half-open peer. Connections that lost
	// something stay dead; new ones are fine then.
	Swallow func(t *testing.T, b backend.Backend) (end func())

	// Cut breaks b's connections. New ones are let through.
	Cut func(t *testing.T, b backend.Backend)

	// DropReply lets b's next request of this kind take effect and loses its
	// answer, with the connection. It returns at once.
	DropReply func(t *testing.T, b backend.Backend, kind Request)

	// These harm the broker of b, and so all that are connected to it. They
	// return when it is well again.

	// Restart stops the broker in good order and starts it again on its data.
	Restart func(t *testing.T, b backend.Backend)

	// Kill ends the broker without a warning and starts it again on its data.
	Kill func(t *testing.T, b backend.Backend)

	// Lose removes a stored message from the broker, behind everybody's back, be
	// it unread or held.
	Lose func(t *testing.T, b backend.Backend, topic, position string)

	// Commands is not a fault but a count: the requests that b has sent so far.
	Commands func(t *testing.T, b backend.Backend) int64
}

// A Request is a kind of what a backend sends to its broker.
type Request string

// The kinds whose answers are dropped.
const (
	RequestPublish Request = "publish" // that stores messages, with or without Once
	RequestReceive Request = "receive" // that leases messages, new ones or such that come back
	RequestAck     Request = "ack"     // that removes messages from a group
)
