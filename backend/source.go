package backend

import (
	"context"
	"time"
)

// A Source is one member of a group. It receives messages and settles them. Its methods
// are safe for concurrent use, except that Receive has one caller at a time. After Close of
// the Source or of its Backend, every method except Close returns [ErrClosed], whatever its
// arguments are. On an open Source, a call with an empty slice returns nil. A Source must
// not use the slices given to a method after the method has returned.
type Source interface {
	// Receive waits until a message is due and returns at most max deliveries. It may also
	// return none. Of all due messages it delivers the messages with the lowest positions,
	// in that order. So it delivers no new message while an earlier message is due again.
	// If max is zero or less, it returns immediately without deliveries, and takes none.
	//
	// The sum of the Sizes of the deliveries is at most maxBytes. Only a message that is
	// alone may be larger, because no Receive could deliver it otherwise. If maxBytes is
	// zero or less, the sum has no bound. Receive may stop before the sum reaches maxBytes.
	// A message that does not fit stays due, and no attempt is counted for it. It comes
	// first in the next Receive, like every due message. A driver that learns the size of a
	// message only with its body gives the message back before it returns. Such a message
	// may come as Redelivered.
	//
	// A delayed message is delivered at most half a second after it is due, if a
	// member waits in Receive. A message whose lease expired may be delivered
	// later, and out of order.
	//
	// The deliveries are valid even if err is not nil. After Receive has returned, the
	// broker sends this member no more messages. So a driver that has asked its broker for
	// messages waits for them, or withdraws the request. It drops no message that arrived.
	//
	// Receive returns within a second after ctx is done, with the deliveries that have
	// arrived, and with err nil or ctx.Err(). An error that says only that ctx is done must
	// match no error class of this package. For example, the bus takes [ErrUnavailable] for
	// a failure of the broker.
	//
	// After a Receive has failed, the next Receive returns as soon as the broker answers,
	// even with no deliveries. From this return the bus learns that the broker is back.
	//
	// The slice ds is valid until the next Receive, and the caller may change it. The
	// caller may keep and change the headers, the payloads and all other data to which a
	// delivery refers.
	Receive(ctx context.Context, max int, maxBytes int64) (ds []Delivery, err error)

	// Ack removes the messages of ds from the group for good. Usually it also removes a
	// message whose lease has expired, and a second Ack is no error. If the broker has
	// forgotten the delivery and will redeliver the message, the error of the item matches
	// [ErrLeaseLost]. An error may be a [BatchError].
	//
	// Ack is fenced, and so stricter, if [Config].ConfirmAcks is set and the backend states
	// [Limits].FencedAcks. A nil error then means that this member held the message and has
	// removed it. The member holds the message after its lease too, until the message is
	// redelivered. After an Ack without an error, a second Ack of the same delivery returns
	// ErrLeaseLost.
	//
	// The error of a delivery of another topic, group or driver is [ErrRefused]. The same is
	// true of Delay and Extend. A group that was deleted and made anew is no other group, see
	// [Admin].DeleteGroup.
	//
	// Ack must not change the deliveries, because a concurrent Extend may read them.
	Ack(ctx context.Context, ds []*Delivery) error

	// Close leaves the group. The messages that this member still holds are redelivered
	// to other members when their leases have expired. Closing twice is not an error.
	Close() error
}

// Config says which group to attach to, and how.
type Config struct {
	Topic, Group string // the bus has checked both with CheckName

	// Start says where the group begins if this Attach creates it. A group that exists
	// continues at its position.
	Start Start

	// Ephemeral makes a group that lives with its members, if the backend states
	// [Limits].Ephemeral. The group is deleted when its last member closes, and if no member was
	// heard of for ten leases: a process that has died holds nothing back for longer. A member is
	// heard of by Attach, Receive, Extend and Maintain for its group. Every backend of the broker
	// deletes such groups with its Maintain, for whatever topic it is called, or the broker does.
	// A member of a deleted group gets [ErrGone]. Attach returns [ErrRefused] if the group exists
	// and is not of the same kind.
	Ephemeral bool

	// Lease is how long a delivery stays with this member before it is due again, measured
	// by the broker if it can. Before this lease has expired, no other member gets the
	// message, even if the other member has a shorter lease. A crash of the broker ends no
	// lease. If members of a group have different leases, redelivery may wait for the
	// longest of them. Attach refuses a lease of zero or less with [ErrRefused], and creates
	// no group.
	Lease time.Duration

	// MaxInFlight is the largest number of deliveries that the bus holds at any time. A
	// driver may size buffers by it, and need not enforce it.
	MaxInFlight int

	// ConfirmAcks asks that Ack returns only after the broker has confirmed. Without
	// ConfirmAcks, Ack may return when the acknowledgement is sent, if that is cheaper. The
	// backend then states [Limits].LooseAcks.
	ConfirmAcks bool

	// Instance is the stable name of a process, which a later incarnation of the process has too.
	// Incarnation is the unique name of the present incarnation. The bus sets both or none, has checked both
	// with CheckName, and sets none without [Limits].Instances.
	//
	// Attach replaces each member of the group that has the same Instance and another
	// Incarnation. Such a member is of a process that has died, or stands still. When Attach
	// returns, a replaced member holds nothing. The messages that it held are due, with
	// their attempts counted, so the group gets them before any new message. Members with
	// another Instance, with none, or with this Incarnation are not affected. So one process
	// may have several members in a group.
	//
	// Receive of a replaced member returns [ErrReplaced] and no deliveries. A Receive under
	// way returns it within a second. A message that the broker gives to such a Receive at
	// the moment of the Attach is due again at most a second later. Delay, Extend and a fenced
	// Ack of a replaced member return [ErrLeaseLost]. An Ack that is not fenced may still
	// remove messages.
	//
	// A backend remembers an Incarnation while a member of it receives, and for at least
	// ten minutes after a member last received. It may then forget the Instance.
	Instance, Incarnation string

	// Notify gets each notice of the driver for the operator. Notify may be nil. It returns
	// at once, and may be called from any goroutine.
	Notify func(Notice)
}

// Start is a place in a topic: where a new group begins, or a Read. It is [StartEarliest],
// [StartLatest], or a result of [StartAfter] or [StartAt].
type Start string

const (
	StartEarliest Start = ""       // begins with the oldest message that the topic keeps
	StartLatest   Start = "latest" // begins with the first message published after Attach
)

const (
	startAfter = "after "
	startAt    = "at "
)

// StartAfter returns the Start of a group that begins with the first message stored after
// position. It does not check position. Attach and ResetGroup return [ErrRefused], and
// change nothing, if a text cannot be a position or a Start is unknown. A backend may also
// refuse a position that the topic has not reached yet, in the same way.
//
// For a position of a deleted topic, a new topic of the same name gives all its messages, or
// Attach and ResetGroup return ErrRefused. The bus relies on this rule: after [ErrGone] it
// attaches after a position that it knows, and if the backend refuses it, with the earliest.
//
// StartAfter of an empty position is StartEarliest.
func StartAfter(position string) Start {
	if position == "" {
		return StartEarliest
	}
	return Start(startAfter + position)
}

// After returns the position given to [StartAfter]. It returns false if s is not a result of
// StartAfter, or if the position is empty.
func (s Start) After() (position string, ok bool) {
	if len(s) <= len(startAfter) || s[:len(startAfter)] != startAfter {
		return "", false
	}
	return string(s[len(startAfter):]), true
}

// StartAt returns the Start of a group that begins with the first message stored at t or later,
// by the clock of the broker. With a t in the future the group begins with the next message. If the topic no longer has
// messages of that time, the group begins with the oldest message kept. A backend may count in milliseconds, and
// then begins with the millisecond of t.
func StartAt(t time.Time) Start { return Start(startAt + t.UTC().Format(time.RFC3339Nano)) }

// At returns the time given to [StartAt]. It returns false if s is not a result of StartAt.
func (s Start) At() (t time.Time, ok bool) {
	if len(s) <= len(startAt) || s[:len(startAt)] != startAt {
		return t, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(s[len(startAt):]))
	return t, err == nil
}

// A Notice tells the operator about something in the driver. Examples are a restored
// connection, an unsafe setting of the server, and a message that was lost to a limit.
type Notice struct {
	Topic, Group string // empty if the notice concerns the whole backend
	Text         string
	Err          error // may be nil
}
