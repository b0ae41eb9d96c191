package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// Policy says what follows a failed run.
type Policy struct {
	MaxAttempts int // the most that a Plan says, unless the event asks for more; 0: no limit

	// Plan is for h, whose run ended with err.
	Plan func(h *Hold, err error) Plan

	// OwnAttempts returns how many attempts h asks for itself; 0: no limit. It may be nil.
	OwnAttempts func(h *Hold) (attempts int, ok bool)

	// Class names err in a dead letter. If it is nil, ErrorClass does.
	Class func(err error) string

	LeaveTimeouts bool // an event whose run timed out is left to its lease

	exact bool // giving back without a run counts no attempt, so a high count proves something
}

// A Plan says what follows a failed attempt.
type Plan struct {
	MaxAttempts int           // 0: no limit
	After       time.Duration // before the next attempt
	Discard     bool          // after the last attempt, in place of a dead letter
}

// limit is how many attempts h may have.
func (p Policy) limit(h *Hold) int {
	if p.OwnAttempts == nil || p.MaxAttempts == 0 || h.attempt <= p.MaxAttempts {
		return p.MaxAttempts
	}
	if n, ok := p.OwnAttempts(h); ok && (n == 0 || n > p.MaxAttempts) {
		return n
	}
	return p.MaxAttempts
}

// suspect reports whether a message was delivered more often than failures explain.
func (p Policy) suspect(h *Hold) bool {
	most := p.limit(h)
	return most > 0 && h.attempt > most
}

// spent reports whether a message is to be put aside without another run. It was delivered
// so often that it, or another event, ends the process before its runs end.
func (p Policy) spent(h *Hold) bool {
	most := p.limit(h)
	return p.exact && most > 0 && h.attempt > max(3*most, most+16)
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
	reason  string        // DeadLetter, Discard; leftToLease
}

const leftToLease = "left to its lease"

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
	ReasonExpired    = "expired"     // it came too late
	ReasonTooLarge   = "too-large"   // it is larger than MaxReceive
)

// decide returns the verdict of a run. It is a pure function.
func (p Policy) decide(r run) verdict {
	s, marked := errors.AsType[*signal](r.err)
	switch {
	case r.err == nil && !r.manual:
		return verdict{outcome: observer.Acknowledge}
	case r.settled && marked && s.reason == ReasonExpired:
		return verdict{outcome: observer.Discard, reason: ReasonExpired}
	case r.settled:
		return verdict{outcome: observer.Discard, reason: ReasonOnReceive}
	case r.lost:
		return verdict{outcome: observer.Forget}
	case errors.Is(r.err, errKeyFailed):
		return verdict{outcome: observer.DeadLetter, reason: ReasonKeyFailed}
	case errors.Is(r.err, errNoVerdict):
		return verdict{outcome: observer.DeadLetter, reason: ReasonNoVerdict}
	case marked && s.kind == permanent:
		return verdict{outcome: observer.DeadLetter, reason: s.reason}
	case marked && s.kind == drop:
		return verdict{outcome: observer.Discard, reason: s.reason}
	case marked && s.kind == snooze:
		return verdict{outcome: observer.Snooze, after: s.after}
	case r.interrupted:
		return verdict{outcome: observer.Return}
	case p.LeaveTimeouts && isTimeout(r.err):
		return verdict{outcome: observer.Forget, reason: leftToLease}
	}
	plan := p.Plan(r.hold, r.err)
	switch {
	case plan.MaxAttempts > 0 && r.hold.attempt >= plan.MaxAttempts:
		if plan.Discard {
			return verdict{outcome: observer.Discard, reason: ReasonExhausted}
		}
		return verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}
	case marked && s.kind == retryAfter:
		return verdict{outcome: observer.Retry, after: s.after}
	}
	return verdict{outcome: observer.Retry, after: plan.After}
}

// A signal is an error by which a handler chooses the verdict.
type signal struct {
	kind   signalKind
	after  time.Duration
	reason string // of permanent and drop
	err    error
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
	return &signal{kind: permanent, reason: ReasonPermanent, err: err}
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
func Drop(reason string) error {
	return &signal{kind: drop, reason: ReasonDropped, err: errors.New("dropped: " + reason)}
}

// unrun reports whether err says that no handler ran.
func unrun(err error) bool {
	s, ok := errors.AsType[*signal](err)
	return ok && s.reason == ReasonExpired || errors.Is(err, errKeyFailed) || errors.Is(err, errNoVerdict)
}

// Expired settles an event that came too late, without a run.
func Expired(at time.Time, bury bool) error {
	s := &signal{kind: drop, reason: ReasonExpired, err: fmt.Errorf("eventbus: expired at %v", at.UTC().Format(time.RFC3339Nano))}
	if bury {
		s.kind = permanent
	}
	return s
}
