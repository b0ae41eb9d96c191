package eventbus

import (
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/internal/letter"
)

// A DeadLetter says why an event is in a dead-letter topic. The event is stored there with its
// payload, key and headers. Each field below is also stored in the header named in its comment,
// so that programs in other languages can read it.
type DeadLetter struct {
	Reason      string    // eventbus-dead-reason: one of the Reason constants
	Error       string    // eventbus-dead-error: the text of the last error, at most 4 KiB
	ErrorClass  string    // eventbus-dead-error-class: see Options.ErrorClasses
	Stack       string    // eventbus-dead-stack: the stack of a panic, at most 8 KiB
	Attempts    int       // eventbus-dead-attempts: the number of the last attempt
	Topic       string    // eventbus-dead-topic: the topic in which the event was published
	Group       string    // eventbus-dead-group: the group whose handler failed
	ID          string    // eventbus-dead-id: the ID of the event; the dead letter has another ID
	Position    string    // eventbus-dead-position: the position of the event in Topic
	LastAttempt time.Time // eventbus-dead-last-attempt: when the last run began; without a run, when the dead letter was made
	Redriven    int       // eventbus-dead-redriven: how often package deadletter has redriven the event
}

// The reasons for dead letters and discards, in DeadLetter.Reason and in the observer's hooks
// DeadLettered and Discarded.
const (
	ReasonPermanent   = "permanent"    // the handler returned Permanent
	ReasonExhausted   = "exhausted"    // Retry.MaxAttempts was reached
	ReasonKeyFailed   = "key-failed"   // an earlier event of the same key failed for good (FailAll)
	ReasonUnreadable  = "unreadable"   // the stored body cannot be decoded
	ReasonNoVerdict   = "no-verdict"   // delivered far more often than MaxAttempts without a result: its runs may crash the process
	ReasonExpired     = "expired"      // the event reached a member after its TTL
	ReasonTooLarge    = "too-large"    // the event is larger than SubscribeOptions.MaxReceive
	ReasonOperator    = "operator"     // an operator took the event from the group; see deadletter.Topic.Bury
	ReasonUnknownType = "unknown-type" // discarded: DiscardUnknown got the event
	ReasonDropped     = "dropped"      // discarded: the handler returned Drop
	ReasonGone        = "gone"         // discarded: the stored body is lost
	ReasonOnReceive   = "on-receive"   // the run failed after AckOnReceive had acknowledged the event; discarded, unless DeadLetterOnReceive is set
	ReasonUnconfirmed = "unconfirmed"  // discarded: with AckOnReceive, the acknowledgement was not confirmed within the lease
)

// DeadLetterOf returns why e is in a dead-letter topic. It returns false if e is not a dead
// letter. For a Delivery d, pass &d.Event.
func DeadLetterOf(e *Event) (DeadLetter, bool) {
	h := e.Headers
	l := DeadLetter{
		Reason: h.Get(letter.Reason), Error: h.Get(letter.Error), ErrorClass: h.Get(letter.ErrorClass),
		Stack: h.Get(letter.Stack), Topic: h.Get(letter.Topic), Group: h.Get(letter.Group),
		ID: h.Get(letter.ID), Position: h.Get(letter.Position),
	}
	l.Attempts, _ = strconv.Atoi(h.Get(letter.Attempts))
	l.LastAttempt, _ = time.Parse(time.RFC3339Nano, h.Get(letter.LastAttempt))
	l.Redriven, _ = strconv.Atoi(h.Get(letter.Redriven))
	return l, l.Reason != ""
}
