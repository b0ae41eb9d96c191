// Package conformance tests whether a backend keeps the contract of package backend. A
// backend that passes works with the bus.
//
// You write one test function:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Suite{Name: "mine", New: func(t *testing.T) backend.Backend { … }})
//	}
//
// Each conformance test checks one promise and runs as a subtest with an ID, such as
// TestConformance/C24-delay-order, so that -run selects it. Some tests call the backend
// directly. The others, whose IDs begin with "B.", run a whole bus on the backend and then
// check the record of all events.
//
// A backend claims an optional interface of package backend by implementing it, and a field of
// [backend.Limits] by setting it. The suite skips the tests of what your backend does not
// claim and lists them as not claimed: that is no failure, because the bus works without it.
//
// Basic tests run first. If one of them fails, the others don't run, because they build on it.
// A test that hangs fails, and names the call that has not returned, its arguments in short,
// and the goroutines of the backend. At the end the suite prints an account: how many tests
// passed, failed and are not claimed, and which call was the slowest. Plain go test shows the
// account if it tests only this package or if a test fails; otherwise add -v.
//
// # A broker in its own process
//
// Give each test a broker of its own. New starts the broker, puts a TCP proxy in front of it
// and opens a backend through the proxy; [Suite].Peer opens another backend through another
// proxy. A fault then harms either one proxy, and so one backend, or the broker, and so all of
// its backends. Leave Around unset, and set Parallel, because the tests mostly wait: on a small
// machine they take a minute and a half with go test -parallel 16, and half of that with
// -parallel 48. The broker must write each change to its files before it confirms the change,
// or else tests about a crash fail now and then.
//
// # A store in this process
//
// An embedded store has no connections and no broker to start. Most tests can run all the
// same if you set these fields of Suite and Faults:
//
//   - Peer returns a second Backend on the same open store. It stands for a Backend in
//     another process. Both point to one value of your code, which owns the open store, a
//     signal that wakes waiting members, and the list of members. Keep leases, attempts and
//     positions in the store, because one Backend cannot see the fields of the other. When
//     one Backend closes, the store stays open for the other.
//   - Restart closes the store cleanly and opens its files again. Kill does not close the
//     store: it locks the store, copies the files, and opens the copy. Without the lock, the
//     copy may lack a commit that the store confirmed while you copied. After either fault,
//     the Backend that New returned and its sources must work again: guard the handle of the
//     store with a lock, and let the fault replace the handle. Calls during the fault wait,
//     or fail with [backend.ErrUnavailable].
//   - Lose deletes the body of a stored message. Down, Freeze, Swallow, Cut, DropReply and
//     Commands are about connections. Leave them unset, and the tests that need them are not
//     claimed.
//
// If the store waits only on channels, mutexes, disks and time, set Around to synctest.Test
// and Lease to 30 seconds. The tests then take seconds, because the fake clock of synctest
// jumps ahead whenever all goroutines wait.
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

	// New returns a new backend that shares no broker or store with earlier backends, and
	// closes it with t.Cleanup. Each test calls New once.
	New func(t *testing.T) backend.Backend

	// NewBounded, if set, is like New, but the backend has room for only about this many
	// messages of a few bytes. If there is no room, Publish fails with [backend.ErrFull].
	// After the groups settle messages, Maintain makes room again.
	NewBounded func(t *testing.T, messages int) backend.Backend

	// Lease is the lease that the tests use. The slowest call to the backend should take less
	// than half of it; the account that Run prints names this call. If Lease is zero, each
	// test uses four times the duration of the slowest call so far, but at least one second
	// (two with Parallel) and at most ten.
	Lease time.Duration

	// Around, if set, must call f, which is one test. It is usually synctest.Test.
	Around func(t *testing.T, f func(*testing.T))

	// Parallel lets as many tests run at the same time as go test -parallel allows. This
	// saves time, because tests on a real clock mostly wait.
	Parallel bool

	// Bus, if set, makes the bus under test, for example a wrapper of the bus. If Bus is
	// nil, [eventbus.New] makes the bus.
	Bus func(t *testing.T, b backend.Backend, o eventbus.Options) Bus

	// Engine adds the tests of the bus whose verdict no backend can change, such as those of
	// limiters, middleware and batch sizes. The bus runs them on package inmemory, so a
	// backend need not repeat them. They also run if Bus is set, or if Only names them.
	Engine bool

	// Peer, if set, returns another backend on b's broker, with connections of its own, as
	// another process would have it, and closes it with t.Cleanup. Tests of members in several
	// processes need it. The package comment describes Peer for a store in this process.
	Peer func(t *testing.T, b backend.Backend) backend.Backend

	// Faults harm the broker and its connections. A test that needs a fault that is nil does
	// not run, and the account lists it as not claimed.
	Faults Faults

	// Weaker maps each test whose promise the broker cannot keep to the reason. A key is the
	// ID of the test, or its ID and name such as "M03-lag-truth". The test does not run, and
	// the account shows it as weaker, with the reason. Run fails t if Weaker, Grace or Only
	// names a test that does not exist.
	Weaker map[string]string

	// Grace maps tests, by keys as in Weaker, to a delay that is added to each of their time
	// limits. Use it for a broker that has trouble while the tests run, such as the election
	// of a leader. Such a test also repeats calls that failed, and tolerates a delivery that
	// does not reach the member, as long as the message is redelivered; a delivery that
	// Delivery.Attempt does not count; and a redelivery after an acknowledgement that was not
	// answered. It still fails if a message is lost or invented, or if events of a key are
	// out of order. The account names the tests that passed with Grace.
	Grace map[string]time.Duration

	// Only, if set, lists the tests to run, by keys as in Weaker. The account marks the
	// results of such a run as a selection.
	Only []string
}

// A Bus is what the tests of the bus call: an [*eventbus.Bus], or a wrapper of one.
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
