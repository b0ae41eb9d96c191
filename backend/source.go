package backend

import (
	"context"
	"time"
)

// A Source is one member of a group. It receives messages and settles them. Its methods
// are safe for concurrent use, except that Receive has one caller at a time. After Close
// of the Source or of its Backend each method returns [ErrClosed] before it looks at
// anything else. A call with nothing to settle is no error. The slices that a call is
// given are lent until it returns.
type Source interface {
	// Receive waits until a message is due and returns at most max deliveries. Of all
	// due messages it delivers the lowest positions, in that order. So it
	// delivers no new message while a redelivered one is due. It may return none. With
	// a max of zero or less it returns none at once and takes nothing.
	//
	// A delayed message is delivered at most half a second after it is due, if a
	// member waits in Receive. A message whose lease expired may be delivered
	// later, and out of order.
	//
	// The deliveries count even if there is an error too. When Receive returns,
	// nothing more is on its way: a driver that has asked its broker for messages waits
	// for them, or withdraws the request. Receive returns within a second after ctx is
	// done, with the deliveries that have arrived, and with err nil or ctx.Err(). An
	// error that says only that ctx is done matches no error class of this package,
	// because the bus takes [ErrUnavailable] for a failure of the broker.
	// No delivery is ever abandoned.
	//
	// After a Receive has failed, the next Receive returns as soon as the broker answers,
	// even with no deliveries. By its return the bus detects that the broker is back.
	//
	// The slice is lent until the next Receive, and the caller may change and clear it.
	// Headers, payloads and everything else that a delivery refers to are the caller's,
	// to keep and to change. Attempt, Token and Position are set even if Err is.
	Receive(ctx context.Context, max int) (ds []Delivery, err error)

	// Ack removes deliveries from the group for good. To acknowledge twice, or after
	// the lease has expired, is not an error, and removes the message all the same. If
	// the broker has forgotten the delivery and will redeliver the message, the error
	// of the item matches [ErrLeaseLost]. An error may be a [BatchError].
	//
	// With [Config].ConfirmAcks, and if [Limits].FencedAcks is stated, Ack is fenced as
	// [Delayer].Delay is. A nil error then means that this member held the message and
	// has removed it. The lease may have expired, if nobody else has taken the message.
	// A second Ack of the same delivery is then ErrLeaseLost.
	//
	// A Token of another group or backend is [ErrRefused].
	//
	// The deliveries are lent until Ack returns, and only to be read: a call of Extend
	// may have the same ones at that moment.
	Ack(ctx context.Context, ds []*Delivery) error

	// Close leaves the group. The messages that this member still holds are redelivered
	// to other members when their leases have expired. Closing twice is not an error.
	Close() error
}

// Config says which group to attach to, and how.
type Config struct {
	Topic, Group string // checked by the bus, see [CheckName]

	// Start says where the group begins if this Attach creates it. A group that exists
	// continues at its position.
	Start Start

	// Lease is how long a delivery stays with this member before it is due again,
	// measured by the broker if it can. The lease belongs to the holder: another member,
	// whatever its own lease, never gets a delivery before this lease has expired. If
	// the leases of a group differ, redelivery may wait for the longest of them. Attach
	// refuses a lease of zero or less with [ErrRefused], and makes no group.
	Lease time.Duration

	// MaxInFlight bounds the deliveries that this member holds at any time. It is a
	// hint for sizing.
	MaxInFlight int

	// ConfirmAcks asks that Ack returns only when the broker has confirmed. Without it
	// a driver may return when the acknowledgement is sent, if that is cheaper, and
	// states [Limits].LooseAcks.
	ConfirmAcks bool

	// Notify receives notices of the driver. It may be nil, returns at once, and may be
	// called from any goroutine.
	Notify func(Notice)
}

// Start says where a new group begins: one of the constants, or [StartAfter].
type Start string

const (
	StartEarliest Start = ""       // with the oldest message that the topic keeps
	StartLatest   Start = "latest" // with the first message published from now on
)

const startAfter = "after "

// StartAfter begins with the first message stored after position. A backend refuses a
// position of another form, or an unknown Start, with [ErrRefused], and then makes no group. It may refuse a
// position that the topic has not reached yet.
func StartAfter(position string) Start { return Start(startAfter + position) }

// After returns the position of a [StartAfter].
func (s Start) After() (position string, ok bool) {
	if len(s) <= len(startAfter) || s[:len(startAfter)] != startAfter {
		return "", false
	}
	return string(s[len(startAfter):]), true
}

// A Notice is something an operator should know: the driver's own connection is back, a
// safer server setting is missing, a message was lost to a limit.
type Notice struct {
	Topic, Group string // empty if it concerns the whole backend
	Text         string
	Err          error // may be nil
}
