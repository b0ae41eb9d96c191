// Package observer lets a program watch a bus, for metrics, traces and logs.
package observer

import "time"

// An Observer has a hook for each kind of occurrence: a function that the bus calls. A nil
// hook is not called.
//
// Started and Handled run on the handler's goroutine, and Published on the goroutine that called
// Publish. All other hooks run one after another on a single other goroutine, so that a
// slow hook delays no lease, no read and no acknowledgement. At most 4,096 occurrences
// wait for that goroutine. Further occurrences are dropped, and a later call of Failed
// gets [ErrDropped] with their number. The bus recovers from a hook that panics, and
// reports the panic to Failed.
type Observer struct {
	Published      func(Published)      // a call of Publish ended
	Dropped        func(Dropped)        // events of a call of Publish were dropped, because too many events waited; see Options.WhenFull
	Received       func(Received)       // a read from the backend returned messages
	Started        func(Started)        // a run of a handler begins
	Handled        func(Handled)        // a handler returned
	Settled        func(Settled)        // acknowledgements were confirmed
	Retried        func(Retried)        // a message is redelivered later, after a failed run or a Snooze
	DeadLettered   func(DeadLettered)   // a message was stored in its dead-letter topic
	Discarded      func(Discarded)      // a message was acknowledged without success
	Extended       func(Extended)       // leases were extended
	LeaseLost      func(LeaseLost)      // a lease was lost: another member may have the message now
	Stuck          func(Stuck)          // a handler has not returned five seconds after its timeout
	StateChanged   func(StateChanged)   // a subscription changed its state
	Maintained     func(Maintained)     // backend.Maintainer was called
	PartitionMoved func(PartitionMoved) // a subscription has got or given up a partition
	Noticed        func(Noticed)        // a driver gave a notice
	Failed         func(Failed)         // an error occurred that no call returns
	Stopped        func(Stopped)        // the bus was shut down; the last call, except for handlers that still run
}

// About says which message an occurrence concerns.
type About struct {
	Topic, Group string
	ID, Position string
	Type         string // the type of the event; empty if it has none or it is not known, as in LeaseLost, Stuck and Failed
	Attempt      int
	Tag          any // the tag of the run, see eventbus.Tag; nil if there was no run, or no tag
}

// Published tells how a call of Publish ended.
type Published struct {
	Topic      string
	Events     int
	Bytes      int // total size of Events, headers included
	Stored     int // how many of Events are stored, duplicates included
	Duplicates int // for how many of Stored the backend had an earlier copy, see Options.Dedup
	Took       time.Duration
	Err        error // nil if all events are stored
}

// Dropped describes the events of one call of Publish that were dropped, because too many
// events waited to be published. They are certainly not stored, and their Publish has
// failed.
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

// Started tells that a run begins: the middleware is called next, and it calls the handler.
// If the event has expired or a middleware refuses it, the handler does not get it, and the
// hook Handled is not called.
type Started struct{ About }

// Handled tells how a handler ended. Its hook is not called for an event with a
// [NotRunError].
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
	Snooze      Outcome = "snooze"      // the message is redelivered after a delay; for attempts see eventbus.Snooze
	DeadLetter  Outcome = "dead-letter" // the message goes to the dead-letter topic
	Discard     Outcome = "discard"     // the message is acknowledged without success
	Return      Outcome = "return"      // the message is given back without a delay, because the subscription ends
	Hold        Outcome = "hold"        // the message stays held until the program settles it, see SubscribeManual
	Forget      Outcome = "forget"      // the bus does not settle the message: its lease is lost, or will expire (LeaveTimeouts)
)

// Settled describes confirmed acknowledgements.
type Settled struct {
	Topic, Group string
	Events       int
	Took         time.Duration // the duration of the call to the backend
	Tags         []any         // the tags of the runs of these events, see eventbus.Tag; a run may have no tag
}

// Retried describes a message that will be redelivered, because a run has failed or its
// handler has returned a Snooze.
type Retried struct {
	About
	Outcome     Outcome       // Retry or Snooze
	MaxAttempts int           // the last attempt, for this error; 0: no limit
	After       time.Duration // the delay until the message may be redelivered
	Err         error         // the error of the run
	Class       string        // the class of Err, as in a dead letter
}

// DeadLettered tells why a message was stored in its dead-letter topic.
type DeadLettered struct {
	About
	DeadLetter string // the dead-letter topic
	Reason     string // one of the Reason constants of package eventbus
	Err        error
	Class      string // the class of Err, as in the dead letter
}

// Discarded tells why a message was acknowledged without success.
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

// LeaseLost describes a lease that expired, or of a message that another member received.
type LeaseLost struct {
	About
	Running bool          // the handler was running, and its context was cancelled
	Held    time.Duration // the time since the message was received
	Err     error         // why the lease was lost
}

// Stuck tells, once for each run, of a handler that has not returned five seconds after its
// timeout.
type Stuck struct {
	About
	Running time.Duration // how long the handler has run so far
}

// A State is the state of a subscription.
type State string

// The states of a subscription.
const (
	Starting State = "starting"
	Running  State = "running"
	Degraded State = "degraded" // reads fail, settlements fail for longer than a lease, dead letters cannot be stored, or all handlers are stuck; the error says which
	Limited  State = "limited"  // the limiter, such as an open breaker, allows no read for a while
	Paused   State = "paused"
	Draining State = "draining"
	Closed   State = "closed" // drained, or failed for good
)

// StateChanged tells that the state of a subscription has changed.
type StateChanged struct {
	Topic, Group string
	From, To     State
	Err          error // the error that caused the change; may be nil
}

// Maintained describes a call of Maintain, the method of a backend.Maintainer.
type Maintained struct {
	Topic, Group string
	Took, Next   time.Duration // the duration of the call, and the time until the next one
}

// PartitionMoved tells that a subscription owns a partition of its topic from now on, or no longer.
type PartitionMoved struct {
	Topic, Group string
	Partition    int
	Epoch        int    // grows with each change of the owner
	Gained       bool   // false: it was given back, or lost
	Reason       string // one of the reasons below, such as ReasonTaken
	Err          error  // why it was lost; nil: it was not
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

// A Scope says in which part of the bus something failed.
type Scope string

// The values of Failed.Scope.
const (
	Open          Scope = "open"        // the broker does not answer a call of Open, which tries again
	Receive       Scope = "receive"     // a read from the backend, or the limiter before it
	Decode        Scope = "decode"      // a stored body cannot be decoded, or is lost
	Ack           Scope = "ack"         // acknowledging messages
	Delay         Scope = "delay"       // giving messages back, such as for a retry
	Extend        Scope = "extend"      // extending leases
	DeadLettering Scope = "dead-letter" // storing a dead letter
	Panic         Scope = "panic"       // a handler, a function of Retry or OnDeadLetter panicked
	Maintain      Scope = "maintain"    // a call of a backend.Maintainer
	Schedule      Scope = "schedule"    // publishing scheduled events that are due
	Observe       Scope = "observe"     // a hook panicked, or occurrences were dropped because a hook was too slow
)

// Failed describes an error that no call returns.
type Failed struct {
	Scope  Scope
	About      // ID, Position and Attempt are empty if the error concerns several messages
	Events int // how many messages the error concerns; may be 0
	Err    error
}

// Stopped tells that the bus was shut down.
type Stopped struct {
	Err error // errors of the shutdown, without events that were left behind; may be nil
}
