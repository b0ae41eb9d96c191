package backend

import (
	"context"
	"time"
)

// A Source is one member of a group. It receives messages and settles them. Its methods
// are safe for concurrent use, except that Receive has one caller at a time. After Close
// of the Source or of its Backend each method but Close returns [ErrClosed], whatever its
// arguments are. An empty slice is no error. A Source must not use the slices given to a
// method after the method has returned.
type Source interface {
	// Receive waits until a message is due and returns at most max deliveries. Of all due
	// messages it delivers the messages with the lowest positions, in that order. So it
	// delivers no new message while a redelivered one is due. It may return no delivery.
	// With a max of zero or less it returns none immediately, and no message changes.
	//
	// A delayed message is delivered at most half a second after it is due, if a
	// member waits in Receive. A message whose lease expired may be delivered
	// later, and out of order.
	//
	// The deliveries are valid even if err is not nil. When Receive returns, the broker
	// sends this member no more messages: a driver that has asked its broker for messages
	// waits for them, or withdraws the request. It never drops a message that has arrived.
	//
	// Receive returns within a second after ctx is done, with the deliveries that have
	// arrived, and with err nil or ctx.Err(). An error that says only that ctx is done
	// matches no error class of this package, because the bus takes [ErrUnavailable] for
	// a failure of the broker.
	//
	// After a Receive has failed, the next Receive returns as soon as the broker answers,
	// even with no deliveries. By its return the bus detects that the broker is back.
	//
	// The slice ds is valid until the next Receive, and the caller may change it. The
	// caller may keep and change the headers, the payloads and all else that a delivery
	// refers to. Attempt, Token and Position are set even if Delivery.Err is.
	Receive(ctx context.Context, max int) (ds []Delivery, err error)

	// Ack removes the messages of ds from the group for good. To acknowledge twice, or
	// after the lease has expired, is not an error, and removes the message all the same.
	// If the broker has forgotten the delivery and will redeliver the message, the error
	// of the item matches [ErrLeaseLost]. An error may be a [BatchError].
	//
	// With [Config].ConfirmAcks, and if [Limits].FencedAcks is stated, Ack is fenced as
	// [Delayer].Delay is. A nil error then means that this member held the message and
	// has removed it. It holds the message after its lease too, until another member
	// receives it. A second Ack of the same delivery then returns ErrLeaseLost.
	//
	// The error of a delivery of another group or backend is [ErrRefused].
	//
	// Ack may only read the deliveries, because a concurrent call of Extend may read the
	// same ones.
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
	// measured by the broker if it can. Another member, even with a shorter lease of its
	// own, gets no message that this member holds before this lease has expired. If
	// the leases of a group differ, redelivery may wait for the longest of them. Attach
	// refuses a lease of zero or less with [ErrRefused], and makes no group.
	Lease time.Duration

	// MaxInFlight is the most deliveries that the bus holds at any time. A driver may
	// size buffers by it, and need not enforce it.
	MaxInFlight int

	// ConfirmAcks asks that Ack returns only when the broker has confirmed. Without it
	// a driver may return when the acknowledgement is sent, if that is cheaper, and
	// states [Limits].LooseAcks.
	ConfirmAcks bool

	// The driver calls Notify with each notice for the operator. Notify may be nil,
	// returns at once, and may be called from any goroutine.
	Notify func(Notice)
}

// Start says where a new group begins. It is [StartEarliest], [StartLatest], or a result of
// [StartAfter].
type Start string

const (
	StartEarliest Start = ""       // with the oldest message that the topic keeps
	StartLatest   Start = "latest" // with the first message published after Attach
)

const startAfter = "after "

// StartAfter begins with the first message stored after position. A backend refuses an
// unknown Start, and a text that cannot be a position, with [ErrRefused]. It then makes no
// group. It may refuse a position that the topic has not reached yet.
func StartAfter(position string) Start { return Start(startAfter + position) }

// After returns the position given to [StartAfter]. It returns false if s is not a result of
// StartAfter, or if the position is empty.
func (s Start) After() (position string, ok bool) {
	if len(s) <= len(startAfter) || s[:len(startAfter)] != startAfter {
		return "", false
	}
	return string(s[len(startAfter):]), true
}

// A Notice tells the operator of an event in the driver, such as: its connection is back,
// a safer server setting is missing, a message was lost to a limit.
type Notice struct {
	Topic, Group string // empty if it concerns the whole backend
	Text         string
	Err          error // may be nil
}
