package backend

import (
	"context"
	"time"
)

// A Delayer is a [Source] that can give deliveries back before their lease
// ends. Without it the bus keeps what must wait, and its lease.
type Delayer interface {
	// Delay makes each delivery due after its For, for the whole group and for
	// any length up to [Limits].Delay, and survives what a published message
	// survives. It is never due earlier than asked by the broker's clock.
	//
	// It is fenced: if the caller is no longer the holder (the lease passed and
	// another took it, or it was settled), nothing changes and the item's error
	// matches [ErrLeaseLost]. It may say so too when the lease has passed and
	// nobody has taken it yet. An item whose outcome is unknown is not repeated
	// after its lease.
	Delay(ctx context.Context, ds []Delayed) error
}

// An Extender is a [Source] that can restart the lease. Without it a handler
// must finish within one lease, nothing is read ahead, and what waits behind a
// retry of its key comes again when its lease has passed, in no order.
type Extender interface {
	// Extend makes each delivery due one lease from now. It is fenced as Delay
	// is. It does not count as an attempt. What ds points to is lent, as to
	// [Source].Ack.
	Extend(ctx context.Context, ds []*Delivery) error
}

// A Declarer is a [Backend] that can create a topic ahead of its first message.
type Declarer interface {
	// Declare creates topic as needed. It returns [ErrDenied] if this client may
	// not publish to it. The bus calls it for dead-letter topics, so that a
	// missing permission shows at start and not with the first dead letter.
	Declare(ctx context.Context, topic string) error
}

// A Maintainer is a [Backend] that needs work done on the side. The bus calls
// it for each topic and group it is subscribed to, never twice at once.
type Maintainer interface {
	// Maintain does one bounded piece of work (trims what every group has
	// settled, removes members that are gone) and says when it wants to be
	// called next.
	Maintain(ctx context.Context, topic, group string) (next time.Duration, err error)
}

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic that are stored after the
	// position from, oldest first; from "" is the oldest kept. They are the
	// caller's to keep and to change. It does not wait:
	// at the end it returns none. A topic that does not exist is [ErrGone].
	Read(ctx context.Context, topic, from string, max int) ([]Message, error)
}

// A Statser is a [Backend] that can say how a group is doing.
type Statser interface {
	// Stats describes one group. A topic or group that does not exist is
	// [ErrGone].
	Stats(ctx context.Context, topic, group string) (Stats, error)
}

// Unknown stands in [Stats] for a number the backend cannot tell for certain.
const Unknown = -1

// Stats describes one group at one moment. A number is exact or [Unknown]. Lag,
// InFlight and Delayed together are what the group has not settled: a message
// whose lease or delay has passed counts where it was until somebody takes it.
type Stats struct {
	Depth    int64 // messages the topic keeps
	Lag      int64 // messages not yet handed out to this group for the first time
	InFlight int64 // held by a member
	Delayed  int64 // handed out before, waiting to be due, held by nobody
	Members  int64 // attached now

	// Oldest is when the oldest message that this group has not settled was
	// stored; zero if there is none.
	Oldest time.Time
}

// A Scheduler is a [Backend] that stores messages to appear later.
type Scheduler interface {
	// Schedule stores msgs so that they are published at the given moment,
	// never earlier. Cancel undoes it by the message's ID.
	Schedule(ctx context.Context, at time.Time, msgs []*Message) error
	// Cancel removes a scheduled message and reports whether it was still there.
	Cancel(ctx context.Context, topic, id string) (bool, error)
}

// An Admin is a [Backend] whose topics and groups can be listed and changed.
type Admin interface {
	// Topics lists the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)
	// Groups lists the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)
	// DeleteTopic removes a topic with its groups and messages. Members that
	// are attached get [ErrGone].
	DeleteTopic(ctx context.Context, topic string) error
	// DeleteGroup removes a group. Members that are attached get [ErrGone].
	DeleteGroup(ctx context.Context, topic, group string) error
	// ResetGroup lets a group begin anew at start; what it held or delayed is
	// forgotten.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}

// A Pinger is a [Backend] that can tell whether its broker answers.
type Pinger interface {
	// Ping makes one round trip.
	Ping(ctx context.Context) error
}

// Limited is a [Backend] that has facts to state. A backend without it has the
// zero [Limits].
type Limited interface {
	Limits() Limits
}

// Limits are facts about a backend. They do not change while it is open.
type Limits struct {
	Batch      int           // most messages in one Publish, Ack, Delay or Extend; 0: any number
	Payload    int           // most bytes of Message.Size in one message; 0: not known
	Delay      time.Duration // longest Delay; 0: any
	OnceWindow time.Duration // how long Once remembers an ID; 0: Once is not offered
	Refund     bool          // Delayed.Refund works; otherwise every receipt counts

	// LooseAcks: without Config.ConfirmAcks, Ack returns when the
	// acknowledgement is sent, not when the broker has confirmed it.
	LooseAcks bool

	// FencedAcks: with Config.ConfirmAcks, Ack tells a member that it is no longer
	// the holder.
	FencedAcks bool

	// Publishers is how many calls of Publish the bus keeps under way at once; more
	// would not be faster. 0: 4. Less than 0: any number, as Publish waits for nothing
	// and concurrent calls have no round trips to share. Options.PublishTimeout of the
	// bus does not bound such a Publish. So a wrapper whose Publish waits states 0.
	Publishers int
}

// LimitsOf returns the facts that b, or what it wraps, states.
func LimitsOf(b Backend) Limits {
	if l, ok := As[Limited](b); ok {
		return l.Limits()
	}
	return Limits{}
}

// As finds an optional verb in v, which is a [Backend] or a [Source], or in
// what it wraps: a wrapper has a method Unwrap() Backend or Unwrap() Source.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch u := v.(type) {
		case interface{ Unwrap() Backend }:
			v = u.Unwrap()
		case interface{ Unwrap() Source }:
			v = u.Unwrap()
		default:
			v = nil
		}
	}
	var none T
	return none, false
}
