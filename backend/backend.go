// Package backend is the contract between the event bus and a broker: what a
// driver must do, in words that package conformance turns into tests.
//
// A group holds messages, each with a moment from which it is due. Receive hands
// out the lowest positions that are due and makes them due again one lease later,
// so a message that its holder abandons comes back by itself. Ack removes a
// message. Delay and Extend move the moment. Everything else (retries, dead
// letters, limits, order, timeouts, draining) is policy; the bus does it, once, for
// every driver.
//
// A driver implements [Backend] and [Source], six methods. What more its broker
// can do it says by implementing an optional verb ([Delayer], [Extender],
// [Declarer], [Maintainer], [Reader], [Statser], [Scheduler], [Admin], [Pinger]) and, as
// facts, by [Limited]. A verb that turns out to be missing only at run time
// returns an error that matches [errors.ErrUnsupported].
//
// A driver starts no goroutines, repeats no call by itself and logs nothing:
// what it has to say goes to [Config.Notify].
package backend

import (
	"context"
	"net/url"
	"time"
)

// A Backend speaks to one broker. Its methods are safe for concurrent use.
// After Close each of them returns [ErrClosed].
type Backend interface {
	// Publish stores msgs, which may be of any topics, creating topics as
	// needed. Messages of one topic are stored in the order given.
	//
	// It returns once every message is stored as durably as the broker can,
	// and then has set Position and Duplicate of each. Where only some were
	// stored the error is a [BatchError]. A message whose error matches
	// [ErrUnavailable], [ErrDenied], [ErrFull], [ErrTooLarge] or [ErrRefused] is
	// certainly not stored; any other error leaves it open, and should match
	// [ErrUnknownOutcome]. The call is not repeated by the driver.
	//
	// ctx bounds the call: soon after it is done Publish returns, with
	// ErrUnknownOutcome for what may have been sent and ErrUnavailable for what
	// certainly was not; either matches ctx.Err() too. It may have no deadline. The messages, their headers
	// and payloads are lent until Publish returns; what a driver keeps, it copies.
	Publish(ctx context.Context, msgs []*Message) error

	// Attach makes a new member of a group, creating topic and group as needed.
	// When it returns, the group exists: with [StartLatest] it sees every
	// message whose Publish begins after that. ctx bounds attaching only.
	Attach(ctx context.Context, c Config) (Source, error)

	// Close ends every Source and frees what the Backend owns. A client that
	// was lent to the driver stays open. Closing twice is not an error.
	Close() error
}

// A Source is one member of a group: it takes messages and settles them. Its
// methods are safe for concurrent use, except that Receive has one caller at a
// time. After Close, or Close of its Backend, each of them returns [ErrClosed]
// before it looks at anything else. Nothing to settle is no error. The slices
// that a call is given are lent until it returns.
type Source interface {
	// Receive waits until something is due and returns at most max deliveries. It
	// hands out the lowest positions of all that is due, in that order. So nothing
	// new is handed out while a message that came back is due. It may return none.
	//
	// A message that came back after a Delay is handed out at most half a second
	// after it is due, if a member waits in Receive. A message whose holder lost its
	// lease may be handed out later, and out of order.
	//
	// ds counts even together with an error. When it returns nothing more is on
	// its way: a source that has ordered something waits for it, or takes the
	// order back. It returns within a second after ctx is done, with what has
	// arrived and err nil or ctx.Err(): a delivery is never abandoned.
	//
	// After an error, the next call that the broker answers returns, if with
	// none: that is how the bus learns that it is well again.
	//
	// The slice is lent until the next Receive; the caller may change and clear it.
	// What its deliveries refer to, such as Headers and Payload, is the caller's to
	// keep and to change. Attempt, Token and
	// Position are set also where Err is.
	Receive(ctx context.Context, max int) (ds []Delivery, err error)

	// Ack removes deliveries from the group for good. Acknowledging twice, or after
	// the lease has passed, is not an error and removes the message all the same. If
	// the broker forgot that it handed a message out, and will hand it out again, the
	// item's error matches [ErrLeaseLost]. An error may be a [BatchError].
	//
	// With [Config].ConfirmAcks, where [Limits].FencedAcks is stated, Ack is fenced as
	// [Delayer].Delay is: nil means that this member held the message and has removed
	// it, be it after its lease, if nobody else took it. A second Ack of the same
	// delivery is then ErrLeaseLost.
	//
	// What ds points to is lent until Ack returns, and only to be read: a call of
	// Extend may have the same at that moment.
	Ack(ctx context.Context, ds []*Delivery) error

	// Close leaves the group. What this member still holds comes back to the
	// others when its lease has passed. Closing twice is not an error.
	Close() error
}

// Config says what to attach to.
type Config struct {
	Topic, Group string // checked by the bus, see CheckName

	// Start says where a group begins when it is created by this Attach. A
	// group that exists goes on where it is.
	Start Start

	// Lease is how long a delivery stays with this member before it is due
	// again, measured by the broker where it can. It is the holder's: another
	// member, whatever its own lease, never gets a delivery before this has
	// passed; where leases of a group differ it may come as late as the longest.
	// A lease of zero or less is refused.
	Lease time.Duration

	// MaxInFlight bounds what this member holds at any time: a hint for sizing.
	MaxInFlight int

	// ConfirmAcks asks that Ack returns only when the broker has confirmed.
	// Without it a driver may return once the acknowledgement is sent, if that
	// is cheaper; its [Limits] then say so.
	ConfirmAcks bool

	// Notify receives what the driver has to say. It may be nil, returns at
	// once, and may be called from any goroutine.
	Notify func(Notice)
}

// Start says where a new group begins: one of the constants, or [StartAfter].
type Start string

const (
	StartEarliest Start = ""       // with the oldest message that the topic keeps
	StartLatest   Start = "latest" // with what is published from now on
)

const startAfter = "after "

// StartAfter begins with the first message stored after position. A backend
// refuses a position that it cannot have issued.
func StartAfter(position string) Start { return Start(startAfter + position) }

// After returns the position of a [StartAfter].
func (s Start) After() (position string, ok bool) {
	if len(s) <= len(startAfter) || s[:len(startAfter)] != startAfter {
		return "", false
	}
	return string(s[len(startAfter):]), true
}

// A Notice is something an operator should know: a driver's own connection
// came back, a safer server setting is missing, a message was lost to a limit.
type Notice struct {
	Topic, Group string // empty where it concerns the whole backend
	Text         string
	Err          error // may be nil
}

// A Driver opens backends by URL. A program lists the drivers it wants.
type Driver interface {
	// Schemes are the URL schemes it serves, the preferred one first.
	Schemes() []string

	// Open opens what u names. It refuses parameters that it does not know.
	// Its errors never contain u's password, nor u itself.
	Open(ctx context.Context, u *url.URL) (Backend, error)
}

// A TopicConfigurer is a [Driver] whose topics can have settings of their own,
// such as how many copies there are.
type TopicConfigurer interface {
	// ConfigureTopic returns a driver like this one that opens backends which
	// create topic with settings. It asks no broker. A setting that it does not
	// know, or whose value is wrong, it refuses by its name; values it does not
	// show, as they may be secrets. What becomes of a topic that exists already
	// is the backend's to say.
	ConfigureTopic(topic string, settings map[string]string) (Driver, error)
}

// A URLChecker is a [Driver] that can say what is wrong with a URL without asking
// a broker, for who checks a configuration before it is used.
type URLChecker interface {
	// CheckURL returns the error with which Open would refuse u for what it says:
	// parameters, topics that were configured, files that it names. It asks no broker.
	CheckURL(u *url.URL) error
}
