// Package observer lets your program watch a bus, for metrics, traces and logs.
//
// Set Options.Observer to an [Observer] with the hooks you need. [Slog] returns one that logs what
// an operator should see; package observer/telemetry has one for OpenTelemetry. Combine several
// with [Join].
package observer

import "time"

// An Observer is a set of hooks, functions that the bus calls when something happens. Leave the
// hooks you don't need nil.
//
// Started and Handled run on the handler's goroutine, and Published on the goroutine that called
// Publish, so keep them fast. All other hooks run one after another on a single separate goroutine,
// so that a slow hook delays no lease, read or acknowledgement. At most 4,096 calls wait for that
// goroutine. Further ones are dropped, and a later call of Failed gets [ErrDropped] with their
// number. If a hook panics, the bus recovers and reports the panic to Failed.
type Observer struct {
	Published      func(Published)      // a call to Publish ended
	Dropped        func(Dropped)        // Publish dropped events because too many were waiting; see Options.WhenFull
	Received       func(Received)       // a read from the backend returned messages
	Started        func(Started)        // a run of a handler starts
	Handled        func(Handled)        // a handler returned
	Settled        func(Settled)        // acknowledgements were confirmed
	Retried        func(Retried)        // a message will be redelivered, after a failed run or a Snooze
	DeadLettered   func(DeadLettered)   // a message was stored in its dead-letter topic
	Discarded      func(Discarded)      // a message was acknowledged without success
	Extended       func(Extended)       // leases were extended
	LeaseLost      func(LeaseLost)      // a lease was lost, so another member may have the message
	Stuck          func(Stuck)          // a handler has not returned five seconds after its timeout
	StateChanged   func(StateChanged)   // a subscription changed its state
	Maintained     func(Maintained)     // backend.Maintainer was called
	PartitionMoved func(PartitionMoved) // a subscription gained or lost a partition
	Noticed        func(Noticed)        // a driver gave a notice
	Failed         func(Failed)         // an error occurred that no call returns
	Stopped        func(Stopped)        // the bus was shut down; the last call, except for handlers that are still running
}

// About identifies the message that a hook is called for.
type About struct {
	Topic, Group string
	ID, Position string
	Type         string // the type of the event; empty if it has none, or if it is unknown as in LeaseLost, Stuck and Failed
	Attempt      int
	Tag          any // the tag of the run (see eventbus.Tag); nil if there was no run, or no tag
}

// Published describes how a call to Publish ended.
type Published struct {
	Topic      string
	Events     int
	Bytes      int // total size of Events, including headers
	Stored     int // how many of Events are stored, including duplicates
	Duplicates int // how many of Stored the backend already had; see Options.Dedup
	Took       time.Duration
	Err        error // nil if all events are stored
}

// Dropped describes events of one call to Publish that were dropped because too many events were
// waiting. They are certainly not stored, and their Publish has failed.
type Dropped struct {
	Topic  string
	Events int
	Bytes  int
	Err    error
}

// Received describes the messages of one read.
type Received struct {
	Topic, Group string
	Events       int
	Bytes        int
	Redelivered  int // how many of Events were redelivered
}

// Started reports that a run starts: the middleware is called next, which calls the handler. If the
// event has expired, or a middleware refuses it, the event does not reach the handler, and Handled
// is not called.
type Started struct{ About }

// Handled describes how a handler ended. It is not called for events with a [NotRunError].
type Handled struct {
	About
	Took    time.Duration // how long the handler ran
	Err     error         // nil if the handler succeeded
	Outcome Outcome       // how the message is settled
}

// An Outcome says how the bus settles a message after a run of its handler.
type Outcome string

// The outcomes of a run.
const (
	Acknowledge Outcome = "acknowledge" // the message is acknowledged
	Retry       Outcome = "retry"       // the message is redelivered after a delay
	Snooze      Outcome = "snooze"      // the message is redelivered after a delay; eventbus.Snooze says whether this counts as an attempt
	DeadLetter  Outcome = "dead-letter" // the message goes to the dead-letter topic
	Discard     Outcome = "discard"     // the message is acknowledged without success
	Return      Outcome = "return"      // the message is given back without a delay, because the subscription ends
	Hold        Outcome = "hold"        // the message stays held until the program settles it; see SubscribeManual
	Forget      Outcome = "forget"      // the bus does not settle the message, because its lease is lost or will expire (LeaveTimeouts)
)

// Settled describes confirmed acknowledgements.
type Settled struct {
	Topic, Group string
	Events       int
	Took         time.Duration // the duration of the call to the backend
	Tags         []any         // the tags of the runs of these events (see eventbus.Tag); runs without a tag have none here
}

// Retried describes a message that will be redelivered because a run failed or its handler returned
// a Snooze.
type Retried struct {
	About
	Outcome     Outcome       // Retry or Snooze
	MaxAttempts int           // the last attempt, for this error; 0: no limit
	After       time.Duration // the delay until the message may be redelivered
	Err         error         // the error of the run
	Class       string        // the class of Err, as in a dead letter
}

// DeadLettered describes a message that was stored in its dead-letter topic.
type DeadLettered struct {
	About
	DeadLetter string // the dead-letter topic
	Reason     string // one of the Reason constants of package eventbus
	Err        error
	Class      string // the class of Err, as in the dead letter
}

// Discarded describes a message that was acknowledged without success.
type Discarded struct {
	About
	Reason string // one of the Reason constants of package eventbus
	Err    error  // may be nil
}

// Extended describes leases that were extended.
type Extended struct {
	Topic, Group string
	Events       int
	Took         time.Duration // the duration of the call to the backend
}

// LeaseLost describes a lease that expired, or whose message another member received.
type LeaseLost struct {
	About
	Running bool          // the handler was running, and its context was cancelled
	Held    time.Duration // the time since the message was received
	Err     error         // why the lease was lost
}

// Stuck reports, once per run, a handler that has not returned five seconds after its timeout.
type Stuck struct {
	About
	Running time.Duration // how long the handler has been running
}

// A State is the state of a subscription.
type State string

// The states of a subscription.
const (
	Starting State = "starting"
	Running  State = "running"
	Degraded State = "degraded" // reads fail, settlements have failed for longer than a lease, dead letters cannot be stored, or all handlers are stuck; the error says which
	Limited  State = "limited"  // the limiter, for example an open breaker, allows no reads for now
	Paused   State = "paused"
	Draining State = "draining"
	Closed   State = "closed" // drained, or failed for good
)

// StateChanged reports that a subscription changed its state.
type StateChanged struct {
	Topic, Group string
	From, To     State
	Err          error // the error that caused the change; may be nil
}

// Maintained describes a call to Maintain of a backend.Maintainer.
type Maintained struct {
	Topic, Group string
	Took, Next   time.Duration // the duration of the call, and the time until the next one
}

// PartitionMoved reports that a subscription gained or lost the ownership of a partition.
type PartitionMoved struct {
	Topic, Group string
	Partition    int
	Epoch        int    // grows with each change of the owner
	Gained       bool   // whether it was gained; otherwise it was given back or lost
	Reason       string // one of the reasons below, such as ReasonTaken
	Err          error  // why it was lost, or nil if it was not
}

// The values of PartitionMoved.Reason.
const (
	ReasonGained    = "gained"
	ReasonGivenBack = "given-back" // to other members, or at the end of the subscription
	ReasonExpired   = "expired"    // the lease of its token was not extended in time
	ReasonTaken     = "taken"      // another member has its token
	ReasonDeleted   = "deleted"    // its token was deleted, with the topic or the group
)

// Noticed describes a backend.Notice, a driver's message to the operator.
type Noticed struct {
	Topic, Group string
	Text         string
	Err          error // may be nil
}

// A Scope says which part of the bus failed.
type Scope string

// The values of Failed.Scope.
const (
	Open          Scope = "open"        // the broker did not answer Open, which tries again
	Receive       Scope = "receive"     // a read from the backend, or the limiter before it
	Decode        Scope = "decode"      // a stored body cannot be decoded, or is lost
	Ack           Scope = "ack"         // acknowledging messages
	Delay         Scope = "delay"       // giving messages back, for example for a retry
	Extend        Scope = "extend"      // extending leases
	DeadLettering Scope = "dead-letter" // storing a dead letter
	Panic         Scope = "panic"       // a handler, a function of Retry, or OnDeadLetter panicked
	Maintain      Scope = "maintain"    // a call to a backend.Maintainer
	Schedule      Scope = "schedule"    // publishing scheduled events that are due
	Observe       Scope = "observe"     // a hook panicked, or calls were dropped because a hook was too slow
)

// Failed describes an error that no call returns.
type Failed struct {
	Scope  Scope
	About      // ID, Position and Attempt are empty if the error concerns several messages
	Events int // how many messages the error concerns; may be 0
	Err    error
}

// Stopped reports that the bus was shut down.
type Stopped struct {
	Err error // errors of the shutdown, not counting events that were left behind; may be nil
}
