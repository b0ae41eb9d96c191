// Package observer lets a program watch a bus at work. It changes nothing.
package observer

import "time"

// An Observer is told what happens. A nil field is not told.
//
// Handled and Published run on the goroutine that handled or published. All others
// run one after another on a goroutine of their own, so that a slow hook holds up no
// lease, no read and no acknowledgement. That goroutine is behind by at most 4,096
// events. What would exceed that is not told, and the next Failed says how many were
// missed. A hook that panics is recovered from, and told to Failed.
type Observer struct {
	Published    func(Published)    // a call of Publish ended
	Received     func(Received)     // one read brought messages
	Handled      func(Handled)      // a handler returned
	Settled      func(Settled)      // acknowledgements were confirmed
	Retried      func(Retried)      // a message was given back to come again
	DeadLettered func(DeadLettered) // a message was stored in its dead-letter topic
	Discarded    func(Discarded)    // a message was let go without success
	Extended     func(Extended)     // leases were restarted
	LeaseLost    func(LeaseLost)    // a message may be with another member now
	Stuck        func(Stuck)        // a handler does not return after its timeout
	StateChanged func(StateChanged) // a subscription changed its state
	Maintained   func(Maintained)   // the backend was maintained
	Noticed      func(Noticed)      // a driver had something to say
	Failed       func(Failed)       // something went wrong that no caller is told
}

// About says which message an event concerns.
type About struct {
	Topic, Group string
	ID, Position string
	Attempt      int
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

// Received tells what one read brought.
type Received struct {
	Topic, Group string
	Events       int
	Bytes        int
	Redelivered  int // of Events: those whose Attempt is more than 1
}

// Handled tells how a handler ended.
type Handled struct {
	About
	Took    time.Duration
	Err     error   // nil if it succeeded
	Outcome Outcome // what follows
}

// An Outcome is what the bus does with a message after a run of its handler.
type Outcome string

// The outcomes of a run.
const (
	Acknowledge Outcome = "acknowledge" // it is done
	Retry       Outcome = "retry"       // it comes again after a while
	Snooze      Outcome = "snooze"      // it comes again; this run does not count
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
}

// Retried tells when a message is to come again.
type Retried struct {
	About
	After time.Duration
	Err   error
}

// DeadLettered tells why a message was put aside.
type DeadLettered struct {
	About
	DeadLetter string // the topic that has it now
	Reason     string // one of few words: see Delivery headers in package eventbus
	Err        error
}

// Discarded tells why a message was let go.
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

// LeaseLost tells of a lease that passed or was taken.
type LeaseLost struct {
	About
	Running bool // its handler was running and has been cancelled
	Err     error
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
	Degraded State = "degraded" // the backend cannot be reached or refuses; trying on
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

// Noticed passes on what a driver said.
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
	Observe       Scope = "observe" // of a hook, or events it was too slow for
)

// Failed tells of an error that no caller gets.
type Failed struct {
	Scope  Scope
	About      // ID and what follows are empty where it concerns more than one message
	Events int // how many messages it concerns; 0 if none
	Err    error
}
