// Package conformance tests whether a backend keeps the contract of package
// backend. A backend that passes works with the bus.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Suite{Name: "mine", New: func(t *testing.T) backend.Backend { … }})
//	}
//
// A law is a test of one promise, and runs as a subtest. Laws of the contract call the
// backend. Laws of the bus run a bus on the backend, and then check the record of all
// events. A backend claims an optional verb by implementing it, and a field of
// [backend.Limits] by setting it. Laws about other verbs and fields are skipped, and
// reported as not claimed.
//
// Basic laws run first. If a basic law fails, the other laws do not run. A law that hangs
// fails. Its failure names the call that has not returned, the call's arguments in short,
// and the goroutines of the backend. At the end, the suite prints an account: how many laws
// passed, failed and are not claimed, and the slowest call. go test shows the account even
// without -v. If go test runs for several packages, it shows the account only with -v, or
// if this package fails.
//
// # A broker in its own process
//
// Give each law a broker of its own. New starts the broker, puts a TCP proxy before it,
// and opens a backend through the proxy. [Suite].Peer opens another backend through
// another proxy. A fault harms either one proxy, and so one backend, or the broker, and so
// all backends. Leave Around unset. Set Parallel, because laws mostly wait: on a small
// machine they take a minute with go test -parallel 16, and half a minute with -parallel
// 48. The broker must write each change to its files before it confirms the change.
// Otherwise laws about a crash fail now and then.
//
// # A store in this process
//
// An embedded store has no connections and no broker to start. Most laws can run all the
// same, if you set these fields of Suite and Faults:
//
//   - Peer returns a second Backend on the same open store. It stands for a Backend in
//     another process. Both Backends point to one value of your code, which has the open
//     store, a signal that wakes waiting members, and the list of members. Keep leases,
//     attempts and positions in the store, because one Backend cannot see the fields of the
//     other. When one Backend closes, the store stays open for the other.
//   - Restart closes the store cleanly and opens its files again. Kill does not close the
//     store: it locks the store, copies the files, and opens the copy. Without the lock,
//     the copy may lack a commit that the store confirmed during the copying. After
//     either fault, the Backend that New returned and its sources must work again. Guard
//     the handle of the store with a lock, and let the fault replace the handle. Calls
//     during the fault wait, or fail with [backend.ErrUnavailable].
//   - Lose deletes the body of a stored message. Down, Freeze, Swallow, Cut, DropReply and
//     Commands are about connections. Leave them unset, so that laws about them are
//     reported as not claimed.
//
// If the store waits only on channels, mutexes, disks and time, set Around to
// synctest.Test and Lease to 30 seconds. The laws then take seconds, because the fake
// clock of synctest jumps ahead while all goroutines wait.
package conformance

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Suite names one backend and says how to open, harm and test it.
type Suite struct {
	// Name is the name of the backend in reports.
	Name string

	// New returns a new backend that shares no broker or store with earlier backends. New
	// closes the backend with t.Cleanup. Each law calls New once.
	New func(t *testing.T) backend.Backend

	// NewBounded, if set, is like New, but the backend has room for only about this many
	// messages of a few bytes. If there is no room, Publish fails with [backend.ErrFull].
	// After the groups settle messages, Maintain makes room again.
	NewBounded func(t *testing.T, messages int) backend.Backend

	// Lease is the lease that the laws use. The slowest call to the backend should take
	// less than half of the lease. The account that Run prints names this call. If Lease is
	// zero, each law uses four times the duration of the slowest call so far. The bounds of
	// such a lease are one second (two with Parallel) and ten seconds.
	Lease time.Duration

	// Around, if set, must call f, which runs the test of one law. For example, Around is
	// synctest.Test.
	Around func(t *testing.T, f func(*testing.T))

	// Parallel lets as many laws run at the same time as go test -parallel allows. This
	// saves time, because laws on a real clock mostly wait.
	Parallel bool

	// Bus, if set, makes the bus under test, for example a wrapper of the bus. If Bus is
	// nil, [eventbus.New] makes the bus.
	Bus func(t *testing.T, b backend.Backend, o eventbus.Options) Bus

	// Engine adds the tests of the bus whose verdict no backend can change, such as those of
	// limiters, middleware and batch sizes. The bus runs them on package inmemory, so a
	// backend need not repeat them. They also run if Bus is set, or if Only names them.
	Engine bool

	// Peer, if set, returns another backend on b's broker, with its own connections, as in
	// another process. Peer closes the backend with t.Cleanup. Laws about members in
	// several processes need it. The package comment describes Peer for a store in this
	// process.
	Peer func(t *testing.T, b backend.Backend) backend.Backend

	// Faults can harm the broker and its connections. If a law needs
	// a fault that is nil, the law does not run, and the account lists it as not claimed.
	Faults Faults

	// Weaker maps each law that the broker cannot keep to the reason. A key is the law's
	// ID, or its ID and name such as "M03-lag-truth". The law does not run, and the account
	// shows it as weaker, with the reason. Run fails t if Weaker, Grace or Only names a law
	// that does not exist.
	Weaker map[string]string

	// Grace maps laws, by keys as in Weaker, to an allowed delay, which is added to every
	// time limit of the law. Use it for a broker that has trouble while the laws run, such
	// as the election of a leader. Such a law also tolerates failed calls, and repeats
	// them. It tolerates a delivery that does not reach the member, if the message is
	// redelivered, and a delivery that Delivery.Attempt does not count. It tolerates a
	// redelivery if the acknowledgement was not answered. It fails if a message is lost or
	// invented, or if events of a key are out of order. The account names the laws that
	// passed with Grace.
	Grace map[string]time.Duration

	// Only, if set, lists the laws to run, by keys as in Weaker. The account marks the
	// results of such a run, because the other laws did not run.
	Only []string
}

// A Bus is the bus that laws call: an [*eventbus.Bus], or a wrapper of one.
type Bus interface {
	eventbus.Publisher
	eventbus.ReceiptPublisher
	eventbus.Subscriber
	SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error)
	SubscribeBatch(ctx context.Context, topic string, o eventbus.SubscribeOptions, batch eventbus.Batch, h eventbus.BatchHandler) (*eventbus.Subscription, error)
	Declare(ctx context.Context, topic string, o eventbus.SubscribeOptions) error
	eventbus.Scheduler
	CancelScheduled(ctx context.Context, topic string, ids ...string) ([]bool, error)
	Scheduled(ctx context.Context, topic string) iter.Seq2[eventbus.ScheduledEvent, error]
	Recur(ctx context.Context, r eventbus.Recurring) error
	EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error)
	PauseRecurring(ctx context.Context, topic, id string, paused bool) error
	RecurringEntries(ctx context.Context, topic string) ([]eventbus.RecurringState, error)
	Ready(ctx context.Context) error
	Backend() backend.Backend
	Shutdown(ctx context.Context) error
}

var _ Bus = (*eventbus.Bus)(nil)
