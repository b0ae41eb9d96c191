// Package conformance tests whether a backend keeps the contract of package
// backend. A backend that passes works with the bus; nothing else is needed.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Suite{Name: "mine", New: func(t *testing.T) backend.Backend { … }})
//	}
//
// The laws of the driver run on the backend itself. The laws of the bus run on a bus on
// it, and end with a check of the whole history. Each law is a subtest. A law about a verb
// or a fact that the backend does not claim is skipped and reported as not claimed. Each
// claim must hold.
//
// Basic laws run first. If one fails the others do not run. A law that hangs fails with
// the call that has not returned, its arguments in short, and the goroutines of the
// backend. The run ends with an account: how many laws passed, failed, and are not
// claimed, and the slowest call. go test prints the account without -v, except for a
// passing package among several.
//
// # A broker of its own process
//
// Give each law a broker of its own. New starts the broker, puts a TCP proxy before it,
// and opens a backend through the proxy. [Suite].Peer opens another backend through
// another proxy. [Faults] harm one proxy, which is one backend's connections, or the
// broker, which every backend feels. Leave Around unset and set Parallel: the laws mostly
// wait. On a small machine they take a minute with go test -parallel 16, and half a
// minute with -parallel 48. The broker must write each change before it confirms it.
// Otherwise laws about a crash fail now and then.
//
// # A store in this process
//
// An embedded store has no connections and no broker to start. It still shows most laws:
//
//   - Peer returns a second Backend on the same open store, as another process would have
//     it. The two share one value of yours: the open store, a signal that wakes waiting
//     members, and the list of members. Leases, attempts and positions are in the store,
//     because a field of the first Backend is unknown to the second. Closing one Backend
//     leaves the store open for the other.
//   - Restart closes the store in good order and opens its files again. Kill does so
//     without closing: lock the store, copy its files as they are, and open the copy.
//     Without the lock, a commit during the copy would be confirmed and lost. After both,
//     the Backend that New returned must work again, and so must its sources. Keep the
//     handle behind a pointer with a lock, and let the fault replace it. Calls meanwhile
//     wait, or fail with [backend.ErrUnavailable].
//   - Lose deletes the stored body. Down, Freeze, Swallow, Cut, DropReply and Commands are
//     about connections. Leave them unset: their laws are then not claimed.
//
// If the store waits only on channels, mutexes, disks and time, set Around to
// synctest.Test and Lease to 30 seconds. The laws then take seconds, because their clock
// passes while nothing runs.
package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Suite says how to test one backend.
type Suite struct {
	// Name is the name of the backend in reports.
	Name string

	// New returns a backend that shares nothing with earlier ones. It has t.Cleanup close
	// the backend. It is called once for each law.
	New func(t *testing.T) backend.Backend

	// NewBounded, if set, is like New, but the backend has room for so many messages of a
	// few bytes and refuses more with [backend.ErrFull]. Settled messages make room after
	// maintenance.
	NewBounded func(t *testing.T, messages int) backend.Backend

	// Lease is the lease in the tests. The slowest call to the backend should take less
	// than half of it; if one takes longer, the account says so. If zero, the suite
	// chooses: four times the slowest call so far, at least one second, two if Parallel is
	// set, and at most ten.
	Lease time.Duration

	// Around, if set, wraps every law, for example in synctest.Test.
	Around func(t *testing.T, f func(*testing.T))

	// Parallel lets laws run at the same time, as many as go test -parallel allows. On a
	// real clock they mostly wait.
	Parallel bool

	// Bus, if set, makes the bus under test, in place of eventbus.New. It tests a wrapped
	// bus.
	Bus func(t *testing.T, b backend.Backend, o eventbus.Options) Bus

	// Peer, if set, returns another backend on b's broker, with connections of its own, as
	// in another process. It has t.Cleanup close the backend. Laws about members that die
	// or are held up need it. For a store in this process see above.
	Peer func(t *testing.T, b backend.Backend) backend.Backend

	// Faults are the harm that the suite can do. A law whose fault is not set does not
	// run.
	Faults Faults

	// Weaker says why the broker keeps less than a law promises, by the law's ID, or by ID
	// and name such as "M03-lag-truth". Such a law does not run, and the report shows it
	// as weaker, with the reason. An ID that no law has fails.
	Weaker map[string]string

	// Grace says, by the IDs of laws, how much later than promised things may be. It is
	// for brokers with trouble while the laws run, such as the election of a leader. The
	// suite also tolerates other effects of such trouble. Calls may fail and are repeated,
	// and receipts may get lost or not be counted. A message may be redelivered if its
	// acknowledgement was not answered. No message may be lost or invented, and no events
	// of a key may change places. The report says which laws passed in this way.
	Grace map[string]time.Duration

	// Only, if set, are the IDs of the laws to run. The report shows such a suite apart
	// from suites that run all laws.
	Only []string
}

// A Bus is the bus of the laws: an [*eventbus.Bus], or a wrapper of one.
type Bus interface {
	eventbus.Publisher
	eventbus.Subscriber
	SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error)
	SubscribeBatch(ctx context.Context, topic string, o eventbus.SubscribeOptions, batch eventbus.Batch, h eventbus.BatchHandler) (*eventbus.Subscription, error)
	Ready(ctx context.Context) error
	Shutdown(ctx context.Context) error
}

var _ Bus = (*eventbus.Bus)(nil)
