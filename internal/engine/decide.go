package engine

import (
	"errors"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// Policy says how often a message is tried, and when it is put aside.
type Policy struct {
	MaxAttempts int                                    // 0: no limit
	Backoff     func(h *Hold, err error) time.Duration // before the next attempt of h, whose run ended with err
}

// maxDeliveries is how often a message may be delivered before it is put aside without a
// run. No run of such a message has ever ended, so it, or another event, ends the process.
// 0: no limit.
func (p Policy) maxDeliveries() int {
	if p.MaxAttempts == 0 {
		return 0
	}
	return max(3*p.MaxAttempts, p.MaxAttempts+16)
}

// suspect reports whether a message was delivered more often than failures explain.
func (p Policy) suspect(attempt int) bool { return p.MaxAttempts > 0 && attempt > p.MaxAttempts }

// spent reports whether a message is to be put aside without another run.
func (p Policy) spent(attempt int) bool {
	m := p.maxDeliveries()
	return m > 0 && attempt > m
}

// A run has the facts about a run whose handler has returned.
type run struct {
	hold        *Hold
	err         error // the handler's result
	lost        bool  // the lease
	manual      bool  // the program settles it; a nil result does not
	interrupted bool  // a drain that ran out of time cancelled it
	settled     bool  // acknowledged before it ran, so it is not redelivered
}

// A verdict says how the event is settled after a run.
type verdict struct {
	outcome observer.Outcome
	after   time.Duration // Retry, Snooze
	reason  string        // DeadLetter, Discard
}

// The reasons for a dead letter or a discard.
const (
	ReasonPermanent  = "permanent"   // the handler said so
	ReasonExhausted  = "exhausted"   // every attempt failed
	ReasonKeyFailed  = "key-failed"  // an earlier event of its key failed for good (FailAll)
	ReasonUnreadable = "unreadable"  // the stored body cannot be decoded
	ReasonNoVerdict  = "no-verdict"  // delivered too often without a result
	ReasonDropped    = "dropped"     // the handler said so
	ReasonGone       = "gone"        // the stored body is lost
	ReasonOnReceive  = "on-receive"  // failed after it was acknowledged
	ReasonUnacked    = "unconfirmed" // its acknowledgement on receipt was not confirmed in time
)

// decide returns the verdict of a run. It is a pure function.
func (p Policy) decide(r run) verdict {
	switch {
	case r.err == nil && !r.manual:
		return verdict{outcome: observer.Acknowledge}
	case r.settled:
		return verdict{outcome: observer.Discard, reason: ReasonOnReceive}
	case r.lost:
		return verdict{outcome: observer.Forget}
	}
	s, marked := errors.AsType[*signal](r.err)
	switch {
	case errors.Is(r.err, errKeyFailed):
		return verdict{outcome: observer.DeadLetter, reason: ReasonKeyFailed}
	case errors.Is(r.err, errNoVerdict):
		return verdict{outcome: observer.DeadLetter, reason: ReasonNoVerdict}
	case marked && s.kind == permanent:
		return verdict{outcome: observer.DeadLetter, reason: ReasonPermanent}
	case marked && s.kind == drop:
		return verdict{outcome: observer.Discard, reason: ReasonDropped}
	case marked && s.kind == snooze:
		return verdict{outcome: observer.Snooze, after: s.after}
	case r.interrupted:
		return verdict{outcome: observer.Return}
	case p.MaxAttempts > 0 && r.hold.attempt >= p.MaxAttempts:
		return verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}
	case marked && s.kind == retryAfter:
		return verdict{outcome: observer.Retry, after: s.after}
	}
	return verdict{outcome: observer.Retry, after: p.Backoff(r.hold, r.err)}
}

// A signal is an error by which a handler chooses the verdict.
type signal struct {
	kind  signalKind
	after time.Duration
	err   error
}

type signalKind int

const (
	permanent signalKind = iota
	retryAfter
	snooze
	drop
)

func (s *signal) Error() string { return s.err.Error() }
func (s *signal) Unwrap() error { return s.err }

// Permanent marks err as not worth another attempt.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &signal{kind: permanent, err: err}
}

// RetryAfter asks for the next attempt after d in place of the policy's delay.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		err = errors.New("retry")
	}
	return &signal{kind: retryAfter, after: max(d, 0), err: err}
}

// Snooze asks for the message to come again after d, at no attempt's cost.
func Snooze(d time.Duration) error {
	return &signal{kind: snooze, after: max(d, 0), err: errors.New("snoozed for " + max(d, 0).String())}
}

// Drop asks for the message to be let go.
func Drop(reason string) error { return &signal{kind: drop, err: errors.New("dropped: " + reason)} }
