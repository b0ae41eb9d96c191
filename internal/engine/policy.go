package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

// A Policy decides how an event is settled after a failed run.
type Policy struct {
	MaxAttempts int // the highest MaxAttempts of any Plan; 0 for no limit

	// Plan fills in the plan for h, whose run ended with err. If it panics, the fields it has set
	// so far are valid.
	Plan func(h *Hold, err error, plan *Plan)

	// OwnAttempts returns the limit of attempts that the event itself sets, or 0 for no limit. ok
	// is false if the event sets none. OwnAttempts may be nil.
	OwnAttempts func(h *Hold) (attempts int, ok bool)

	// Class returns the class of err for a dead letter. If Class is nil, ErrorClass is used.
	Class func(err error) string

	LeaveTimeouts bool // an event whose run timed out is redelivered when its lease expires
	BuryReceived  bool // with OnReceive, an event whose run failed becomes a dead letter

	exact bool // only runs count as attempts (Limits.Refund)
}

// A Plan says how often and when to retry an event after a failed attempt.
type Plan struct {
	MaxAttempts int           // the limit of attempts; 0 for no limit
	After       time.Duration // the delay until the next attempt
	Discard     bool          // don't make a dead letter after the last attempt
}

// limit returns how many attempts h may have, or 0 if there is no limit.
func (p Policy) limit(h *Hold) int {
	if p.OwnAttempts == nil || p.MaxAttempts == 0 || h.Attempt <= p.MaxAttempts {
		return p.MaxAttempts
	}
	if n, ok := p.OwnAttempts(h); ok && (n == 0 || n > p.MaxAttempts) {
		return n
	}
	return p.MaxAttempts
}

// last reports whether h has no attempts left after a timeout.
func (p Policy) last(h *Hold) bool {
	most := p.MaxAttempts
	if p.OwnAttempts != nil {
		if n, ok := p.OwnAttempts(h); ok {
			most = n
		}
	}
	return most > 0 && h.Attempt >= most
}

// suspect reports whether h has had more attempts than its limit. Failed runs can't explain this,
// but a run that crashed the process can, so h is suspected of it.
func (p Policy) suspect(h *Hold) bool {
	most := p.limit(h)
	return most > 0 && h.Attempt > most
}

// spent reports whether h must be dead-lettered without another run, because it has had far more
// attempts than its limit. The cause is runs that crashed the process: runs of h, or of events that
// ran beside it.
func (p Policy) spent(h *Hold) bool {
	most := p.limit(h)
	return p.exact && most > 0 && h.Attempt > max(3*most, most+16)
}

// A result describes a run that has ended, for decide.
type result struct {
	ledger.Returned
	hold   *Hold
	err    error // the handler's result
	manual bool  // manual mode, in which returning nil doesn't acknowledge the event
}

// A verdict is how the event is settled after a run.
type verdict struct {
	outcome observer.Outcome
	after   time.Duration // the delay, for Retry and Snooze
	reason  string        // for DeadLetter and Discard; for Forget: leftToLease or ""
	most    int           // Plan.MaxAttempts, for Retry and leftToLease
}

const leftToLease = "left to its lease" // the reason when Policy.LeaveTimeouts applies

// The reasons for a dead letter or a discard.
const (
	ReasonPermanent  = "permanent"   // the handler returned Permanent
	ReasonExhausted  = "exhausted"   // every attempt failed
	ReasonKeyFailed  = "key-failed"  // an earlier event of its key failed for good (FailAll)
	ReasonUnreadable = "unreadable"  // the stored body cannot be decoded
	ReasonNoVerdict  = "no-verdict"  // it was delivered too often without a run returning a result
	ReasonDropped    = "dropped"     // the handler returned Drop
	ReasonGone       = "gone"        // the stored body is lost
	ReasonOnReceive  = "on-receive"  // the run failed after the acknowledgement (OnReceive)
	ReasonUnacked    = "unconfirmed" // the acknowledgement before its run failed (OnReceive)
	ReasonExpired    = "expired"     // it was delivered after its expiry time
	ReasonTooLarge   = "too-large"   // it is larger than MaxReceive

	ReasonUnknown = "unknown-type" // its type has no handler
)

// plan calls p.Plan, which is code of the program. If that code panics before it has set After, the
// event is retried after a second.
func (p Policy) plan(s *Subscription, h *Hold, cause error) Plan {
	plan := Plan{MaxAttempts: p.MaxAttempts, After: time.Second}
	err := guarded(func() error { p.Plan(h, cause, &plan); return nil })
	if err != nil {
		s.notifier.failed(observer.Panic, s.aboutHold(h, h.Run), 1, fmt.Errorf("retry policy: %w", err))
	}
	plan.After = max(plan.After, 0)
	return plan
}

// decide returns the verdict on a run. It has no side effects, unless p.Plan has some.
func (p Policy) decide(about *Subscription, r result) verdict {
	s, marked := errors.AsType[*signal](r.err)
	switch {
	case r.err == nil && !r.manual:
		return verdict{outcome: observer.Acknowledge}
	case r.Leaseless && marked && s.kind == drop:
		return verdict{outcome: observer.Discard, reason: s.reason}
	case r.Leaseless && p.BuryReceived:
		return verdict{outcome: observer.DeadLetter, reason: ReasonOnReceive}
	case r.Leaseless:
		return verdict{outcome: observer.Discard, reason: ReasonOnReceive}
	case r.Lost:
		return verdict{outcome: observer.Forget}
	case marked && s.kind == permanent:
		return verdict{outcome: observer.DeadLetter, reason: s.reason}
	case marked && s.kind == drop:
		return verdict{outcome: observer.Discard, reason: s.reason}
	case marked && s.kind == snooze:
		return verdict{outcome: observer.Snooze, after: s.after}
	case r.Interrupted:
		return verdict{outcome: observer.Return}
	}
	plan := p.plan(about, r.hold, r.err)
	switch {
	case plan.MaxAttempts > 0 && r.hold.Attempt >= plan.MaxAttempts:
		if plan.Discard {
			return verdict{outcome: observer.Discard, reason: ReasonExhausted}
		}
		return verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}
	case p.LeaveTimeouts && isTimeout(r.err):
		return verdict{outcome: observer.Forget, reason: leftToLease, most: plan.MaxAttempts}
	case marked && s.kind == retryAfter:
		return verdict{outcome: observer.Retry, after: s.after, most: plan.MaxAttempts}
	}
	return verdict{outcome: observer.Retry, after: plan.After, most: plan.MaxAttempts}
}
