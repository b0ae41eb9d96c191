package eventbus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/observer"
)

// A Subscription is one member of a group and calls one handler. Its methods are safe for
// concurrent use.
type Subscription struct{ s *engine.Subscription }

// Topic returns the topic as it was given to Subscribe: a name or a pattern. For
// SubscribeOptions.Topics it returns them joined by commas.
func (s *Subscription) Topic() string { return s.s.Topic }

// Topics returns the names of the topics that the subscription reads now, sorted. Topics that
// match a pattern come and go.
func (s *Subscription) Topics() []string { return s.s.Topics() }

// Group returns the name of the subscription's group.
func (s *Subscription) Group() string { return s.s.Group }

// Options returns the settings in force: the options given to Subscribe, with the default in each
// zero field. Group is [Subscription.Group], and Timeout may be the default of the bus. After
// SubscribeBatch they have the changes of [Batch.Options].
func (s *Subscription) Options() SubscribeOptions {
	o, _ := s.s.Options.(SubscribeOptions) // the options of addTo
	o.Topics, o.Retry.Rules = slices.Clone(o.Topics), slices.Clone(o.Retry.Rules)
	return o
}

// Partitions returns the numbers of the partitions that this member owns now, sorted: it alone in
// its group gets their events. It returns nil if the topic has no partitions, and with
// EachInstance, because such a member has all of them and shares none. A member that waits for a
// share has an empty slice, which is not nil.
//
// The members of a group share the partitions of their topic: of M members each owns at most
// P/M, rounded up. When members come and go, partitions move. A member that gives one back
// first ends its runs of this partition. After a crash, the partitions of the member move when
// SubscribeOptions.Lease has passed. The observer's hook PartitionMoved tells of each move.
func (s *Subscription) Partitions() []int { return s.s.Owned() }

// State returns the present state of the subscription, and the error that causes it now, if
// any.
func (s *Subscription) State() (observer.State, error) { return s.s.State() }

// Counts returns the counts of this member.
func (s *Subscription) Counts() Counts { return Counts(s.s.Counts()) }

// Counts are totals of a [Subscription] since its start, and the events that it holds now.
// They count events of this member, not of its group.
type Counts struct {
	Received     int64 // received messages, redeliveries included
	Acknowledged int64 // confirmed acknowledgements, also of discarded and dead-lettered events
	Failures     int64 // runs that failed, panics and timeouts included; a Snooze or a Drop is no failure
	Panics       int64 // how many of Failures have panicked, or ended their goroutine
	Timeouts     int64 // how many of Failures took longer than Timeout, also if they panicked after that
	Snoozes      int64 // runs after which the event is redelivered because of a Snooze
	Retried      int64 // failures after which the event is redelivered
	DeadLettered int64 // events stored in the dead-letter topic
	Discarded    int64 // events acknowledged without success and without a dead letter
	LeasesLost   int64
	Abandoned    int64 // events without a running handler that were still held when a drain ended

	Held      int64 // events held now; at most SubscribeOptions.MaxInFlight
	HeldBytes int64 // total size of the events in Held; SubscribeOptions.MaxBytes bounds it
	Running   int64 // how many of Held have a running handler
}

// Stats asks the backend about the subscription's group, all members together. If the
// backend cannot tell, the error matches errors.ErrUnsupported. With many topics it asks about
// several at a time, and returns the sums: Members is the highest number of any topic, Oldest the
// earliest time, and a number is backend.Unknown if it is unknown for one topic.
func (s *Subscription) Stats(ctx context.Context) (backend.Stats, error) { return s.s.Stats(ctx) }

// A Failing is an event that has failed and waits for another attempt.
type Failing struct {
	Topic, ID, Key, Type, Position string

	Attempt     int       // the attempt that failed last, from 1
	MaxAttempts int       // the last attempt, for this error; 0: no limit
	Due         time.Time // when the next attempt may begin
	Error       string    // the text of the last error, at most 512 bytes
	Class       string    // the class of the last error, as in a dead letter
}

// Failing lists events that have failed in this member and wait for another attempt. It
// returns the newest 100 failures, the newest first, and the number of such events. This
// number is at most 10,000, because the member then forgets the oldest failure. An event
// leaves the list when this member has acknowledged, dead-lettered or discarded it, and one
// lease after Due, because another member may then have it. A Snooze is no failure.
func (s *Subscription) Failing() (newest []Failing, total int) {
	list, total := s.s.Failing()
	newest = make([]Failing, len(list))
	for i, f := range list {
		newest[i] = Failing(f)
	}
	return newest, total
}

// Pause stops the reading of events until Resume. It does not wait: events already held are
// still handled.
func (s *Subscription) Pause() { s.s.Pause() }

// Resume ends a Pause.
func (s *Subscription) Resume() { s.s.Resume() }

// FailedKeys lists the keys whose later events go to the dead-letter topic, sorted; see
// [FailAll]. With OrderTotal the only key is "". With many topics, they are the keys of all of
// them.
func (s *Subscription) FailedKeys() []string { return s.s.FailedKeys() }

// ReleaseKey ends the effect of [FailAll] on key: the handler gets later events of key
// again, of every topic. It reports whether key was one of FailedKeys. In a topic with partitions
// only the owner of the key's partition has the key. ReleaseKey then waits until the key is removed
// from the broker, for ten seconds at most. If that fails, the observer is told
// (Observer.Failed), and the next owner has the key again.
func (s *Subscription) ReleaseKey(key string) bool { return s.s.ReleaseKey(key) }

// SetConcurrency changes how many handlers may run at the same time, between
// SubscribeOptions.Concurrency and MaxConcurrency; for another n it returns a *FieldError. More
// handlers run at once. With fewer, idle ones end first, and no run is cut: handlers that are too many
// end after their present run. Events and the order of keys do not suffer.
func (s *Subscription) SetConcurrency(n int) error {
	if !s.s.Resize(n) {
		return &FieldError{Field: "n", Reason: fmt.Sprintf("is %d, and the subscription may have %s handlers", n, s.s.Range())}
	}
	return nil
}

// Handlers returns how many handlers may run at the same time now, and the bounds of this number:
// SubscribeOptions.Concurrency and MaxConcurrency.
func (s *Subscription) Handlers() (now, least, most int) {
	now, _ = s.s.Handlers()
	return now, s.s.Concurrency, s.s.MaxConcurrency
}

// ScaleUp allows one more handler. It returns false, and changes nothing, at the upper bound.
func (s *Subscription) ScaleUp() bool { return s.s.Grow() }

// ScaleDown ends one idle handler. It returns false, and changes nothing, at the lower bound, and
// if no handler is idle.
func (s *Subscription) ScaleDown() bool { return s.s.Shrink() }

// Done returns a channel that is closed when the subscription has ended: it was drained,
// or has failed for good.
func (s *Subscription) Done() <-chan struct{} { return s.s.Done() }

// Err returns why the subscription has failed for good, such as ErrClosed because its
// backend was closed. It returns nil while the subscription runs, and after the drain of a
// subscription that has not failed. A failed subscription still has to be drained, by Drain
// or by Bus.Shutdown.
func (s *Subscription) Err() error { return s.s.Err() }

// Draining returns a channel that is closed when a Drain or a Shutdown has begun. A program
// that settles events itself, see [Bus.SubscribeManual], then hands over events by Nack with
// [Snooze]. Otherwise the drain waits for these events.
func (s *Subscription) Draining() <-chan struct{} { return s.s.Draining() }

// Drain ends this subscription alone, as [Bus.Shutdown] ends all of them. A later call
// waits for the first one. If ctx of any call ends, Drain cancels the handlers. With the
// context of a running handler of this subscription it returns ErrInHandler at once.
func (s *Subscription) Drain(ctx context.Context) error {
	if s.s.Running(ctx) {
		return ErrInHandler
	}
	left, err := s.s.Drain(ctx)
	if left.Handlers+left.Unsettled == 0 {
		return drainError(nil, err)
	}
	return drainError([]engine.Abandoned{left}, err)
}
