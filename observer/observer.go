// Package observer lets a program watch a bus at work. It changes nothing.
package observer

import "time"

// An Observer has a hook for each kind of occurrence. A nil hook is not called.
//
// Handled and Published run on the goroutine that handled or published. All other hooks
// run one after another on a goroutine of their own, so that a slow hook holds up no
// lease, no read and no acknowledgement. At most 4,096 occurrences wait for that
// goroutine. Further occurrences are dropped, and the next Failed says how many. The bus
// recovers from a hook that panics, and reports it to Failed.
type Observer struct {
	Published    func(Published)    // a call of Publish ended
	Dropped      func(Dropped)      // a call of Publish was dropped, as Options.WhenFull says
	Received     func(Received)     // one read brought messages
	Handled      func(Handled)      // a handler returned
	Settled      func(Settled)      // acknowledgements were confirmed
	Retried      func(Retried)      // a message is to be redelivered later
	DeadLettered func(DeadLettered) // a message was stored in its dead-letter topic
	Discarded    func(Discarded)    // a message was acknowledged without success
	Extended     func(Extended)     // leases were restarted
	LeaseLost    func(LeaseLost)    // another member may have a message now
	Stuck        func(Stuck)        // a handler does not return after its timeout
	StateChanged func(StateChanged) // a subscription changed its state
	Maintained   func(Maintained)   // the backend was maintained
	Noticed      func(Noticed)      // a driver gave a notice
	Failed       func(Failed)       // a failure that no call returns
}

// About says which message an occurrence concerns.
type About struct {
	Topic, Group string
	ID, Position string
	Attempt      int
	Tag          any // of the run, see eventbus.Tag; nil if there was no run, or no tag
}

// Published tells how a call of Publish ended.
type Published struct {
	Topic      string
	Events     int
	Bytes      int
	Stored     int // of Events, duplicates included
	Duplicates int // of Stored: found to be stored before
	Took       time.Duration
	Err        error // nil if all are stored
}

// Dropped tells of events that were dropped because too many waited to be published. They
// are certainly not stored, and their call of Publish has failed.
type Dropped struct {
	Topic  string
	Events int
	Bytes  int
	Err    error
}

// Received tells of the messages of one read.
type Received struct {
	Topic, Group string
	Events       int
	Bytes        int
	Redelivered  int // of Events: the redelivered ones
}

// Handled tells how a handler ended.
type Handled struct {
	About
	Took    time.Duration
	Err     error   // nil if it succeeded
	Outcome Outcome // how the message is settled
}

// An Outcome says how the bus settles a message after a run of its handler.
type Outcome string

// The outcomes of a run.
const (
	Acknowledge Outcome = "acknowledge" // it is done
	Retry       Outcome = "retry"       // it is redelivered after a while
	Snooze      Outcome = "snooze"      // it is redelivered, and this run does not count
	DeadLetter  Outcome = "dead-letter" // it goes to the dead-letter topic
	Discard     Outcome = "discard"     // it is acknowledged without success
	Return      Outcome = "return"      // it goes back at once, as the subscription ends
	Hold        Outcome = "hold"        // it stays with the program, which settles it
	Forget      Outcome = "forget"      // nothing: its lease is lost
)

// Settled tells of confirmed acknowledgements.
type Settled struct {
	Topic, Group string
	Events       int
	Took         time.Duration // of the call to the backend
	Tags         []any         // of the runs of these events that have one, see eventbus.Tag
}

// Retried tells when a message is to be redelivered.
type Retried struct {
	About
	After time.Duration
	Err   error
}

// DeadLettered tells why a message was stored in its dead-letter topic.
type DeadLettered struct {
	About
	DeadLetter string // the topic that has it now
	Reason     string // one of the Reason constants of package eventbus
	Err        error
}

// Discarded tells why a message was acknowledged without success.
type Discarded struct {
	About
	Reason string
	Err    error // may be nil
}

// Extended tells of restarted leases.
type Extended struct {
	Topic, Group string
	Events       int
	Took         time.Duration
}

// LeaseLost tells of a lease that expired, or of a message that another member took.
type LeaseLost struct {
	About
	Running bool          // its handler was running and has been cancelled
	Held    time.Duration // since it was received
	Err     error         // why
}

// Stuck tells of a handler that does not return.
type Stuck struct {
	About
	Running time.Duration // so far
}

// A State of a subscription.
type State string

// The states of a subscription.
const (
	Starting State = "starting"
	Running  State = "running"
	Degraded State = "degraded" // the backend cannot be reached or refuses; the bus tries again
	Limited  State = "limited"  // its limiter grants nothing for a while, such as an open breaker
	Paused   State = "paused"
	Draining State = "draining"
	Closed   State = "closed"
)

// StateChanged tells of a step from one state to another.
type StateChanged struct {
	Topic, Group string
	From, To     State
	Err          error // why, if something went wrong
}

// Maintained tells of a call of the backend's Maintainer.
type Maintained struct {
	Topic, Group string
	Took, Next   time.Duration
}

// Noticed passes on a notice of a driver.
type Noticed struct {
	Topic, Group string
	Text         string
	Err          error // may be nil
}

// A Scope says in which part of the bus something failed.
type Scope string

// The scopes of Failed.
const (
	Publish       Scope = "publish"
	Receive       Scope = "receive"
	Decode        Scope = "decode"
	Ack           Scope = "ack"
	Delay         Scope = "delay"
	Extend        Scope = "extend"
	DeadLettering Scope = "dead-letter"
	Panic         Scope = "panic"
	Maintain      Scope = "maintain"
	Observe       Scope = "observe" // a hook panicked, or was too slow and missed occurrences
)

// Failed tells of an error that no caller gets.
type Failed struct {
	Scope  Scope
	About      // ID, Position and Attempt are empty if it concerns several messages
	Events int // how many messages it concerns; 0 if none
	Err    error
}
