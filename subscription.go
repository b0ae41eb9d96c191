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

// A Subscription is one member of a group, with one handler. Its methods are safe for concurrent
// use.
type Subscription struct{ s *engine.Subscription }

// Topic returns the topic passed to Subscribe, a name or a pattern. For SubscribeOptions.Topics
// it returns them joined by commas.
func (s *Subscription) Topic() string { return s.s.Topic }

// Topics returns the sorted names of the topics that the subscription reads now. Topics that
// match a pattern come and go.
func (s *Subscription) Topics() []string { return s.s.Topics() }

// Group returns the name of the subscription's group.
func (s *Subscription) Group() string { return s.s.Group }

// Options returns the settings in force: those passed to Subscribe, with every zero field
// replaced by its default. Group is [Subscription.Group], and Timeout may come from the Options
// of the bus. After SubscribeBatch they include the changes of [Batch.Options].
func (s *Subscription) Options() SubscribeOptions {
	o, _ := s.s.Options.(SubscribeOptions) // as set by member.config
	o.Topics, o.Retry.Rules = slices.Clone(o.Topics), slices.Clone(o.Retry.Rules)
	return o
}

// Partitions returns the sorted numbers of the partitions that this member owns now. No other
// member of its group gets the events of these partitions. It returns nil if the topic has no
// partitions, and with EachInstance, because such a member has all partitions and shares none.
// While a member waits for its share the result is empty, but not nil.
//
// The members of a group share the partitions of their topic evenly: with P partitions and M
// members, each owns at most P/M, rounded up. When members join or leave, partitions move. A
// member that gives up a partition first finishes its runs. If a member crashes, its partitions
// move after SubscribeOptions.Lease. The observer's hook PartitionMoved reports each move.
func (s *Subscription) Partitions() []int { return s.s.Owned() }

// State returns the current state of the subscription, and the error that causes it, if any.
func (s *Subscription) State() (observer.State, error) { return s.s.State() }

// Counts returns the counts of this member.
func (s *Subscription) Counts() Counts { return Counts(s.s.Counts()) }

// Counts are totals of one [Subscription] since its start, and the events that it holds now. They
// count events of this member, not of its whole group.
type Counts struct {
	Received     int64 // received messages, including redeliveries
	Acknowledged int64 // confirmed acknowledgements, including those of discarded and dead-lettered events
	Failures     int64 // runs that failed, including panics and timeouts; a Snooze or a Drop is not a failure
	Panics       int64 // failures that panicked or ended their goroutine
	Timeouts     int64 // failures that took longer than Timeout, even if they panicked after that
	Snoozes      int64 // runs after which the event is redelivered because of a Snooze
	Retried      int64 // failures after which the event is redelivered
	DeadLettered int64 // events stored in the dead-letter topic
	Discarded    int64 // events acknowledged without success and without a dead letter
	LeasesLost   int64 // events whose lease this member has lost, so that another member may have them
	Abandoned    int64 // events without a running handler that were still held when a drain ended

	Held      int64 // events held now; SubscribeOptions.MaxInFlight limits them
	HeldBytes int64 // total size of the events in Held; SubscribeOptions.MaxBytes limits it
	Running   int64 // events in Held whose handler is running
}

// Stats asks the backend about the whole group, all members together. If the backend cannot
// answer, the error matches errors.ErrUnsupported. With many topics Stats asks about several at a
// time and adds up the numbers, except that Members is the highest of any topic and Oldest is the
// earliest. A number that is unknown for one topic is backend.Unknown.
func (s *Subscription) Stats(ctx context.Context) (backend.Stats, error) { return s.s.Stats(ctx) }

// A Failing is an event that has failed and waits for another attempt.
type Failing struct {
	Topic, ID, Key, Type, Position string

	Attempt     int       // the attempt that failed last, from 1
	MaxAttempts int       // the last attempt for this error; 0: no limit
	Due         time.Time // when the next attempt may begin
	Error       string    // the text of the last error, at most 512 bytes
	Class       string    // the class of the last error, as in a dead letter
}

// Failing lists the events that have failed in this member and wait for another attempt: the 100
// newest failures, newest first, and the total number of such events. The total is at most
// 10,000; beyond that the member forgets its oldest failure. An event leaves the list when this
// member has acknowledged, dead-lettered or discarded it, and one lease after Due, because
// another member may have it by then. A Snooze is not a failure.
func (s *Subscription) Failing() (newest []Failing, total int) {
	list, total := s.s.Failing()
	newest = make([]Failing, len(list))
	for i, f := range list {
		newest[i] = Failing(f)
	}
	return newest, total
}

// Pause stops this member from reading events until Resume. It does not wait, and events that the
// member already holds are still handled. To pause a whole group in every process, see
// [backend.Pauser].
func (s *Subscription) Pause() { s.s.Pause() }

// Resume ends a Pause.
func (s *Subscription) Resume() { s.s.Resume() }

// FailedKeys returns the sorted keys whose later events go to the dead-letter topic; see
// [FailAll]. With OrderTotal the only key is "". With many topics it returns the keys of all of
// them.
func (s *Subscription) FailedKeys() []string { return s.s.FailedKeys() }

// ReleaseKey ends the effect of [FailAll] on key, so that the handler gets later events of the
// key again, in every topic of the subscription. It reports whether key was one of FailedKeys.
//
// In a topic with partitions, call it on the owner of the key's partition, because only that
// member knows the key. ReleaseKey then waits until the key is removed from the broker, for at
// most ten seconds. If that fails, Observer.Failed is called, and the next owner of the partition
// treats the key as failed again.
func (s *Subscription) ReleaseKey(key string) bool { return s.s.ReleaseKey(key) }

// SetConcurrency changes the number of handlers that may run at the same time. n must be between
// SubscribeOptions.Concurrency and MaxConcurrency; otherwise SetConcurrency returns a
// *FieldError. An increase takes effect at once. After a decrease, idle handlers end first, and
// excess ones end after their current run: no run is interrupted. No events are lost, and key
// order is kept.
func (s *Subscription) SetConcurrency(n int) error {
	if !s.s.Resize(n) {
		return &FieldError{Field: "n", Reason: fmt.Sprintf("is %d, but the subscription may have %s handlers", n, s.s.Range())}
	}
	return nil
}

// Handlers returns how many handlers may run at the same time now, and the bounds of this number,
// SubscribeOptions.Concurrency and MaxConcurrency.
func (s *Subscription) Handlers() (now, least, most int) {
	now, _ = s.s.Handlers()
	return now, s.s.Concurrency, s.s.MaxConcurrency
}

// ScaleUp allows one more handler. It reports false and changes nothing if that would exceed
// MaxConcurrency.
func (s *Subscription) ScaleUp() bool { return s.s.Grow() }

// ScaleDown ends one idle handler. It reports false and changes nothing if that would go below
// Concurrency, or if no handler is idle.
func (s *Subscription) ScaleDown() bool { return s.s.Shrink() }

// Done returns a channel that is closed when the subscription has ended, either because it was
// drained or because it has failed for good.
func (s *Subscription) Done() <-chan struct{} { return s.s.Done() }

// Err returns why the subscription has failed for good, such as ErrClosed if its backend was
// closed. It returns nil while the subscription runs, and after a drain if the subscription has
// not failed. A failed subscription still has to be drained, by Drain or Bus.Shutdown.
func (s *Subscription) Err() error { return s.s.Err() }

// Draining returns a channel that is closed when a Drain or Shutdown begins. A program that
// settles events itself (see [Bus.SubscribeManual]) should then hand over its events by Nack with
// [Snooze], because the drain waits until they are settled.
func (s *Subscription) Draining() <-chan struct{} { return s.s.Draining() }

// Drain ends this subscription as [Bus.Shutdown] ends all of them. A later call waits for the
// first one. If the ctx of any call ends, Drain cancels the handlers. If ctx is the context of a
// running handler of this subscription, Drain returns ErrInHandler at once.
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
