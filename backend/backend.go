// Package backend is the contract between the event bus and a message broker. Read it to write a
// driver. Package conformance tests a driver against it, and docs/BACKEND.md walks through one.
//
// A [Backend] stores messages in topics, and a [Source] is one member of a group that receives
// them. Each message of a group is due, that is, ready to be delivered, from some time on.
// Receive delivers the due messages with the lowest positions and makes each of them due again
// one lease later, so that a message is redelivered if its receiver has died. Ack removes a
// message from the group. Delay and Extend change the time from which a message is due.
// Everything else is up to the bus, for all drivers: retries, dead letters, limits, order,
// timeouts and draining.
//
// # What to implement
//
// Backend and Source have six methods together, and a driver that implements them is complete.
// With a [Driver], programs can open the Backend by URL.
//
// If the broker can do more, implement optional interfaces, called verbs, on the same types:
// [Delayer] and [Extender] on the Source, and [Declarer], [Maintainer], [Reader], [Remover],
// [Clocker], [Statser], [Admin], [Pauser], [Settler], [Pinger], [Checker] and [Identified] on the
// Backend. [Limited] states facts about the Backend, such as its limits. If a verb turns out not
// to work at run time, return an error that matches [errors.ErrUnsupported].
//
// # Rules for drivers
//
//   - A driver repeats no call by itself and logs nothing. It sends notices for the operator to
//     [Config].Notify.
//   - A driver starts no goroutines, with one exception: if its client library takes no contexts,
//     a goroutine of the Backend may call the library, so that a method can return when its
//     context is done. Close waits for that goroutine.
//   - Publish and Receive say how they treat ctx. Any other method may ignore ctx if it does not
//     wait. Otherwise it returns soon after ctx is done, with an error that matches ctx.Err().
//     The error also matches [ErrUnavailable] if the call certainly had no effect, and
//     [ErrUnknownOutcome] if it may have had one.
//   - Errors wrap the error class of this package that applies; see [Class].
package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// A Backend speaks to one broker. Its methods are safe for concurrent use. After Close, every
// method except Close returns [ErrClosed].
type Backend interface {
	// Publish stores msgs, which may belong to several topics, and creates missing topics. It
	// stores the messages of each topic in the order given.
	//
	// Publish returns once the broker has stored every message as durably as it can. It sets
	// Position and Duplicate of each stored message. If only some messages were stored, the error
	// is a [BatchError].
	//
	// A message is certainly not stored if its error matches [ErrUnavailable], [ErrDenied],
	// [ErrFull], [ErrTooLarge], [ErrRefused], [ErrClosed] or [errors.ErrUnsupported], and does
	// not match [ErrUnknownOutcome]. With any other error the message may be stored; such an
	// error should match ErrUnknownOutcome.
	//
	// ctx bounds the call and may have no deadline. Publish returns soon after ctx is done. The
	// error of a message that may have been sent is then ErrUnknownOutcome, and that of a message
	// that was not sent is ErrUnavailable. Both match ctx.Err() too.
	//
	// The driver must not use the messages, their headers or their payloads after Publish has
	// returned. It copies whatever it keeps.
	Publish(ctx context.Context, msgs []*Message) error

	// Attach adds a member to a group, and creates the topic and the group if they are missing.
	// The group exists when Attach returns, so a new group with [StartLatest] gets every message
	// whose Publish begins later. ctx bounds Attach, not the Source.
	Attach(ctx context.Context, c Config) (Source, error)

	// Close closes every Source and frees everything that the Backend owns. A client that the
	// program passed to the driver stays open. Closing twice is not an error.
	Close() error
}

// A Source is one member of a group. It receives messages and settles them. Its methods are safe
// for concurrent use, except that Receive has one caller at a time. After Close of the Source or
// of its Backend, every method except Close returns [ErrClosed], whatever its arguments. On an
// open Source, a call with an empty slice returns nil. A Source must not use the slices passed to
// a method after that method has returned.
type Source interface {
	// Receive waits until a message is due, and returns at most max deliveries, possibly none. Of
	// all due messages it delivers those with the lowest positions, in that order. It therefore
	// delivers no new message while an earlier message is due again. If max is zero or less,
	// Receive returns immediately and takes no message.
	//
	// The Sizes of the deliveries add up to at most maxBytes. Only a single message may be
	// larger, because otherwise no Receive could deliver it. If maxBytes is zero or less, there
	// is no such limit. Receive may stop before the limit is reached. A message that does not fit
	// stays due, without an attempt being counted, and comes first in the next Receive like every
	// due message. A driver that learns the size of a message only with its body gives the
	// message back before it returns; such a message may come as Redelivered.
	//
	// A delayed message is delivered at most half a second after it is due, if a member waits in
	// Receive. A message whose lease has expired may be delivered later than that, and out of
	// order.
	//
	// The deliveries are valid even if err is not nil. After Receive has returned, the broker
	// sends this member no more messages: a driver that has asked its broker for messages waits
	// for them or withdraws the request, and drops none that has arrived.
	//
	// Receive returns within a second after ctx is done, with the deliveries that have arrived,
	// and with err nil or ctx.Err(). An error that says only that ctx is done must match no error
	// class of this package; the bus would, for example, take [ErrUnavailable] for a failure of
	// the broker.
	//
	// After a Receive has failed, the next one returns as soon as the broker answers, even
	// without deliveries. That is how the bus learns that the broker is back.
	//
	// The slice ds is valid until the next Receive, and the caller may change it. The caller may
	// keep and change the headers, the payloads and all other data to which a delivery refers.
	Receive(ctx context.Context, max int, maxBytes int64) (ds []Delivery, err error)

	// Ack removes the messages of ds from the group permanently. Usually this works even if the
	// lease has expired, and a second Ack is not an error. If the broker has forgotten the
	// delivery and will redeliver the message, the error of the item matches [ErrLeaseLost]. The
	// error may be a [BatchError].
	//
	// Ack is fenced, and thereby stricter, if [Config].ConfirmAcks is set and the backend states
	// [Limits].FencedAcks. A nil error then means that this member held the message and has
	// removed it. A member holds a message beyond its lease, until the message is redelivered.
	// After an Ack without an error, a second Ack of the same delivery returns ErrLeaseLost.
	//
	// A delivery of another topic, group or driver fails with [ErrRefused], here as in Delay and
	// Extend. A group that was deleted and created again does not count as another group; see
	// [Admin].DeleteGroup.
	//
	// Ack must not change the deliveries, because a concurrent Extend may read them.
	Ack(ctx context.Context, ds []*Delivery) error

	// Close leaves the group. The messages that this member still holds are redelivered to other
	// members when their leases expire. Closing twice is not an error.
	Close() error
}

// Config says which group to attach to, and how.
type Config struct {
	Topic, Group string // both checked by the bus with CheckName

	// Start says where the group begins if this Attach creates it. A group that exists continues
	// at its position.
	Start Start

	// Ephemeral asks for a group that lives only as long as its members, if the backend states
	// [Limits].Ephemeral. The group is deleted when its last member closes, or when no member has
	// given a sign of life for ten leases, so that a process that has died holds nothing back for
	// longer. Attach, Receive, Extend and Maintain for the group are signs of life. The broker
	// deletes such groups by itself, or every backend of the broker does in Maintain, for
	// whichever topic it is called.
	//
	// A member of a deleted group gets [ErrGone]. Attach returns [ErrRefused] if the group exists
	// and is not of the same kind.
	Ephemeral bool

	// Lease is how long a delivery belongs to this member before it is due again, measured by the
	// broker if it can. Until the lease has expired, no other member gets the message, even one
	// with a shorter lease. A crash of the broker does not end leases. If members of a group have
	// different leases, redelivery may wait for the longest of them. Attach refuses a lease of
	// zero or less with [ErrRefused] and creates no group.
	Lease time.Duration

	// MaxInFlight is the largest number of deliveries that the bus holds at any time. A driver
	// may size its buffers by it and need not enforce it.
	MaxInFlight int

	// ConfirmAcks asks that Ack return only after the broker has confirmed. Without ConfirmAcks,
	// Ack may return as soon as the acknowledgement is sent, if that is cheaper; the backend then
	// states [Limits].LooseAcks.
	ConfirmAcks bool

	// Instance is the stable name of a process, and Incarnation the unique name of its current
	// run: after a restart, the Instance is the same and the Incarnation differs. The bus sets
	// both or neither, checks both with CheckName, and sets neither without [Limits].Instances.
	//
	// Attach replaces each member of the group that has the same Instance and another
	// Incarnation, because the process of such a member has died or hangs. When Attach returns, a
	// replaced member holds nothing. The messages that it held are due, with their attempts
	// counted, so the group gets them before any new message. Members with another Instance, with
	// none, or with this Incarnation are not affected, so one process may have several members in
	// a group.
	//
	// Receive of a replaced member returns [ErrReplaced] and no deliveries; a Receive in progress
	// does so within a second. A message that the broker gives to such a Receive at the moment of
	// the Attach is due again at most a second later. Delay, Extend and a fenced Ack of a
	// replaced member return [ErrLeaseLost]. An Ack that is not fenced may still remove messages.
	//
	// A backend remembers an Incarnation while a member of it receives, and for at least ten
	// minutes after a member last received. After that it may forget the Instance.
	Instance, Incarnation string

	// Notify takes the driver's notices for the operator. It may be nil. It returns at once and
	// may be called from any goroutine.
	Notify func(Notice)
}

// Start is a point in a topic at which a new group or a Read begins: [StartEarliest],
// [StartLatest], or a result of [StartAfter] or [StartAt].
type Start string

const (
	StartEarliest Start = ""       // the oldest message that the topic keeps
	StartLatest   Start = "latest" // the first message published after Attach
)

const (
	startAfter = "after "
	startAt    = "at "
)

// StartAfter returns the Start of a group that begins with the first message stored after
// position. It does not check position. Attach and ResetGroup return [ErrRefused], and change
// nothing, if the text cannot be a position or the Start is unknown. A backend may likewise
// refuse a position that the topic has not reached yet.
//
// For a position of a deleted topic, a new topic of the same name gives all its messages, or
// Attach and ResetGroup return ErrRefused. The bus relies on this: after [ErrGone] it attaches
// after a position that it knows, and if the backend refuses that, at the earliest message.
//
// StartAfter of an empty position is StartEarliest.
func StartAfter(position string) Start {
	if position == "" {
		return StartEarliest
	}
	return Start(startAfter + position)
}

// After returns the position passed to [StartAfter]. It returns false if s is not a result of
// StartAfter, or if the position is empty.
func (s Start) After() (position string, ok bool) {
	if len(s) <= len(startAfter) || s[:len(startAfter)] != startAfter {
		return "", false
	}
	return string(s[len(startAfter):]), true
}

// StartAt returns the Start of a group that begins with the first message stored at t or later,
// by the broker's clock. If t is in the future, the group begins with the next message. If the
// topic no longer has messages of that time, it begins with the oldest message kept. A backend
// that counts in milliseconds begins with the millisecond of t.
func StartAt(t time.Time) Start { return Start(startAt + t.UTC().Format(time.RFC3339Nano)) }

// At returns the time passed to [StartAt]. It returns false if s is not a result of StartAt.
func (s Start) At() (t time.Time, ok bool) {
	if len(s) <= len(startAt) || s[:len(startAt)] != startAt {
		return t, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(s[len(startAt):]))
	return t, err == nil
}

// A Notice tells the operator about something that happened in the driver: for example, a
// connection was restored, a setting of the server is unsafe, or a message was lost to a limit.
type Notice struct {
	Topic, Group string // empty if the notice concerns the whole backend
	Text         string
	Err          error // may be nil
}

// A Delayer is a [Source] that can give deliveries back before their leases end. Without it, the
// bus holds a failed event and extends its lease until the retry is due.
type Delayer interface {
	// Delay gives each delivery back: its message is due again, for every member, after
	// [Delayed].For, which may be anything up to [Limits].Delay. A delay is as durable as a
	// published message. By the broker's clock, no message is due before its delay is over.
	//
	// Delay is fenced: if the caller does not hold the delivery anymore, nothing changes and the
	// error of the item matches [ErrLeaseLost]. This is so after an Ack or Delay of the delivery,
	// and after the message was redelivered. If the lease has expired but the message was not
	// redelivered yet, Delay may return ErrLeaseLost or succeed. If the outcome of an item is
	// unknown, the bus repeats the item only within its lease.
	Delay(ctx context.Context, ds []Delayed) error
}

// A Delayed is a delivery that [Delayer].Delay gives back.
type Delayed struct {
	Delivery
	For    time.Duration // time until the message is due again; zero or less: immediately
	Refund bool          // do not count this delivery as an attempt, if [Limits].Refund
}

// An Extender is a [Source] that can restart leases. Without it, handlers must finish within one
// lease, the bus reads no events before a handler is free, and events that wait for the retry of
// an earlier event of their key are redelivered in any order.
type Extender interface {
	// Extend restarts the lease of each delivery, so that the message is due one lease from now.
	// It is fenced like [Delayer].Delay, and does not count as an attempt. It must not change the
	// deliveries, because a concurrent Ack may read them.
	Extend(ctx context.Context, ds []*Delivery) error
}

// A Limited is a [Backend] that states its [Limits]. A Backend that is not Limited has the zero
// Limits.
type Limited interface {
	// Limits returns the same facts while the backend is open.
	Limits() Limits
}

// Limits are facts about a backend. They do not change while it is open.
type Limits struct {
	Batch      int           // most items in one Publish, Ack, Delay or Extend; 0: no limit
	Payload    int           // largest Message.Size in bytes; 0: unknown
	Delay      time.Duration // longest Delayed.For; 0: no limit
	OnceWindow time.Duration // how long Message.Once remembers an ID; 0: Once has no effect
	Refund     bool          // Delayed.Refund works; otherwise every delivery is an attempt

	// LooseAcks means that Ack without Config.ConfirmAcks returns when the acknowledgement is
	// sent, before the broker has confirmed it.
	LooseAcks bool

	// FencedAcks means that Ack with Config.ConfirmAcks returns [ErrLeaseLost] to a member that
	// does not hold the delivery anymore.
	FencedAcks bool

	// Instances means that Attach replaces the members of earlier incarnations of its
	// [Config].Instance.
	Instances bool

	// Positions means that Publish stores a message at its [Message].AtPosition.
	Positions bool

	// Receivers is the number of members of one subscription with many topics that should wait in
	// Receive at the same time, because each of them needs a connection. Zero means any number.
	Receivers int

	// Settings are the topic settings that Declare stores and the backend obeys.
	Settings Supported

	// Ephemeral means that [Config].Ephemeral works.
	Ephemeral bool

	// Publishers is the number of Publish calls that the bus makes at the same time, because more
	// would not be faster. Zero means 4. A store with a single writer states 1. Calls that have
	// not returned after 100 ms do not count, so that a part of the broker that hangs does not
	// hold up the rest; up to 17 times as many calls may then be in progress.
	//
	// A negative number means any number, and that Publish never waits. The bus then neither
	// joins concurrent calls into one nor applies its Options.PublishTimeout. A wrapper whose
	// Publish waits must therefore state 0, even if it wraps such a backend.
	Publishers int
}

// Supported says which of the [TopicSettings] a backend supports.
type Supported struct{ Keep, MaxMessages, MaxBytes bool }

// Check returns an error if a setting of t is negative or not supported.
func (s Supported) Check(t TopicSettings) error {
	switch {
	case t.Keep < 0, t.MaxMessages < 0, t.MaxBytes < 0:
		return fmt.Errorf("%w: a setting of a topic is negative", ErrRefused)
	case t.Keep > 0 && !s.Keep:
		return missing("keep settled messages (Keep)")
	case t.MaxMessages > 0 && !s.MaxMessages:
		return missing("bound the messages of a topic (MaxMessages)")
	case t.MaxBytes > 0 && !s.MaxBytes:
		return missing("bound the bytes of a topic (MaxBytes)")
	}
	return nil
}

// LimitsOf returns the limits that b or a backend that it wraps states. They are zero if none is
// [Limited].
func LimitsOf(b Backend) Limits {
	if l, ok := As[Limited](b); ok {
		return l.Limits()
	}
	return Limits{}
}

// A Declarer is a [Backend] that can create a topic ahead of its first message, and store
// settings of the topic.
type Declarer interface {
	// Declare creates topic if it does not exist. A backend may instead leave the creation to
	// Publish and only check the permission: Declare returns [ErrDenied] if this client may not
	// publish to the topic. The bus declares dead-letter topics, so that Subscribe reports a
	// missing permission before the first dead letter is due.
	//
	// Declare returns the settings in force, which every process sees. It stores the settings of
	// d, and creates the topic for that, if the topic has none or d.Replace is set. It refuses a
	// setting that the backend does not support by [Limits].Settings with
	// [errors.ErrUnsupported], and a negative setting with [ErrRefused], and then changes
	// nothing.
	Declare(ctx context.Context, topic string, d Declaration) (TopicSettings, error)
}

// Declare calls [Declarer].Declare of b. If b is not a Declarer, the error matches
// [errors.ErrUnsupported].
func Declare(ctx context.Context, b Backend, topic string, d Declaration) (TopicSettings, error) {
	if declarer, ok := As[Declarer](b); ok {
		return declarer.Declare(ctx, topic, d)
	}
	return TopicSettings{}, missing("declare a topic")
}

// A Declaration says how to declare a topic. The zero Declaration only creates the topic.
type Declaration struct {
	Settings TopicSettings
	Replace  bool // store Settings even if the topic has others; zero Settings remove them
}

// TopicSettings are the settings of one topic. The broker stores them, and they end with the
// topic.
type TopicSettings struct {
	// Keep is how long a message stays after it was stored, by the broker's clock, even if every
	// group has settled it, so that new groups, ResetGroup and Read get it. After that it may go
	// at any time. If Keep is zero, a settled message may go at once. A message that a group has
	// not settled stays, however old it is.
	Keep time.Duration

	// MaxMessages and MaxBytes limit the messages of the topic, including kept ones. MaxBytes
	// counts Message.Size, or as the broker counts. Before Publish exceeds a limit, it removes
	// messages that every group has settled, the oldest first. If that is not enough, it returns
	// [ErrFull] for the messages that do not fit. Zero means no limit besides those of
	// the backend.
	MaxMessages, MaxBytes int64
}

// String returns the settings as text, such as "Keep 24h0m0s, MaxMessages 1000", or "none".
func (s TopicSettings) String() string {
	var parts []string
	if s.Keep > 0 {
		parts = append(parts, "Keep "+s.Keep.String())
	}
	if s.MaxMessages > 0 {
		parts = append(parts, fmt.Sprintf("MaxMessages %d", s.MaxMessages))
	}
	if s.MaxBytes > 0 {
		parts = append(parts, fmt.Sprintf("MaxBytes %d", s.MaxBytes))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// DeclareGroup creates a topic and a group that begins at start, unless the group exists. The
// topic then keeps messages for the group before the first member attaches. The caller has
// checked both names with [CheckName].
func DeclareGroup(ctx context.Context, b Backend, topic, group string, start Start) error {
	const lease = 100 * time.Millisecond // short, because only the leases of members count
	src, err := b.Attach(ctx, Config{Topic: topic, Group: group, Start: start, Lease: lease})
	if err != nil {
		return err
	}
	return src.Close()
}

// A Maintainer is a [Backend] that needs regular work on its topics and groups. The bus calls
// Maintain for each topic and group of its subscriptions. Calls of one bus for the same topic and
// group do not overlap, but those of different buses may.
type Maintainer interface {
	// Maintain does one bounded piece of work. For example, it trims messages that every group
	// has settled, or removes members that have died. It never trims a message that a group has
	// not settled, even if the group has no members. It returns the time until the next call, at
	// least 100 ms; the bus raises a shorter time. After an error the bus tells the observer,
	// ignores next, and waits with a back-off.
	Maintain(ctx context.Context, topic, group string) (next time.Duration, err error)
}

// A Reader is a [Backend] whose topics can be read without a group.
type Reader interface {
	// Read returns at most max messages of topic, oldest first, beginning where a group with the
	// Start from would begin. For a [StartAfter] of a position that the topic has not reached, it
	// returns none. Read does not wait, and returns no message only at the end of the topic. It
	// leaves out messages whose bodies are lost. If a body cannot be decoded, Payload has the raw
	// bytes. If topic does not exist, the error is [ErrGone]. The caller may keep and change the
	// messages.
	Read(ctx context.Context, topic string, from Start, max int) ([]Message, error)
}

// Read calls [Reader].Read of b. If b is not a Reader, the error matches [errors.ErrUnsupported].
func Read(ctx context.Context, b Backend, topic string, from Start, max int) ([]Message, error) {
	if r, ok := As[Reader](b); ok {
		return r.Read(ctx, topic, from, max)
	}
	return nil, missing("read topics")
}

// A Remover is a [Backend] that can remove single messages from a topic, such as dead letters
// that were sent again.
type Remover interface {
	// Remove removes the messages of topic at these positions, for readers and for every group. A
	// group that has not settled a removed message does not get it anymore, or gets a delivery
	// whose Err matches [ErrGone]. The member that holds a removed message may still settle it. A
	// removed message takes no space: a store that was full can store another one. A position
	// without a message is not an error, so that a call of unknown outcome can be repeated. If
	// topic does not exist, the error is [ErrGone].
	Remove(ctx context.Context, topic string, positions []string) error
}

// Remove calls [Remover].Remove of b. If b is not a Remover, the error matches
// [errors.ErrUnsupported].
func Remove(ctx context.Context, b Backend, topic string, positions []string) error {
	if r, ok := As[Remover](b); ok {
		return r.Remove(ctx, topic, positions)
	}
	return missing("remove messages")
}

// A Clocker is a [Backend] that knows the time of its broker. The bus publishes scheduled events
// by this clock, because the clocks of processes may be wrong.
type Clocker interface {
	// Now returns the current time of the clock by which the messages of topic are stored. If
	// topic does not exist, the error may be [ErrGone].
	Now(ctx context.Context, topic string) (time.Time, error)
}

// Now calls [Clocker].Now of b. If b is not a Clocker, the result is the time of this process.
func Now(ctx context.Context, b Backend, topic string) (time.Time, error) {
	if c, ok := As[Clocker](b); ok {
		return c.Now(ctx, topic)
	}
	return time.Now(), nil
}

// A Statser is a [Backend] that can describe a group.
type Statser interface {
	// Stats describes a group. If the topic or the group does not exist, the error is [ErrGone].
	Stats(ctx context.Context, topic, group string) (Stats, error)
}

// StatsOf calls [Statser].Stats of b. If b is not a Statser, the error matches
// [errors.ErrUnsupported].
func StatsOf(ctx context.Context, b Backend, topic, group string) (Stats, error) {
	if s, ok := As[Statser](b); ok {
		return s.Stats(ctx, topic, group)
	}
	return Stats{}, missing("describe groups")
}

// Stats describes one group at one moment. Each number is exact or [Unknown]. Lag and Unacked
// together are the messages that the group has not settled. A message whose lease or delay is
// over still counts as InFlight or Delayed until a member receives it.
type Stats struct {
	Depth    int64 // messages that the topic keeps
	Lag      int64 // messages after the start of the group that were never delivered to it
	Unacked  int64 // messages that were delivered and not acknowledged: InFlight plus Delayed
	InFlight int64 // messages that a member holds
	Delayed  int64 // messages that were given back and not redelivered since
	Members  int64 // members attached now

	// Oldest is when the oldest unacknowledged message of the group was stored, including held
	// and delayed messages. It is zero if there is none.
	Oldest time.Time
}

// Unknown is the value of a number in [Stats] that the backend does not know for certain.
const Unknown = -1

// An Admin is a [Backend] whose topics and groups can be listed and changed. If a topic or group
// passed to a method does not exist, the error is [ErrGone]. In a cluster of brokers, lists may
// be a second out of date: they may contain names that were just deleted, and miss new ones.
type Admin interface {
	// Topics returns the names of the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)

	// Groups returns the names of the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)

	// DeleteTopic removes a topic with its groups and messages. Receive of each attached member
	// then returns [ErrGone], while Delay, Extend and a fenced Ack return [ErrGone] or
	// [ErrLeaseLost]. A new topic may have the same name. It remembers no IDs of the deleted
	// topic; see [Message].Once. Its positions are greater, or the old positions are refused; see
	// [Message].Position.
	DeleteTopic(ctx context.Context, topic string) error

	// DeleteGroup removes a group. Calls of its members then fail as after DeleteTopic. If a
	// group of the same name is created, a delivery of the old group is treated like one from
	// before ResetGroup: its lease is lost. A member that did not call Receive in the meantime
	// may receive from the new group.
	DeleteGroup(ctx context.Context, topic, group string) error

	// ResetGroup makes a group begin again at start. The group forgets which messages were held
	// or delayed. Members stay attached, and a Receive in progress delivers the messages that are
	// due now. For a delivery from before the reset, Delay, Extend and a fenced Ack return
	// [ErrLeaseLost]. A backend without [Limits].FencedAcks may accept Delay and Extend until the
	// lease of that delivery has expired, and Ack at any time.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}

// A Pauser is a [Backend] whose groups can be paused. The broker stores the pause, so it applies
// to all members, including those that attach later. If the topic or the group does not exist,
// the error is [ErrGone].
type Pauser interface {
	// Pause pauses a group, or changes its pause. A Receive that begins more than a second after
	// Pause has returned delivers no messages until p.Until or Resume. Held messages can still be
	// settled, and their leases expire as usual. ResetGroup leaves a group paused, and
	// DeleteGroup ends its pause. If p.Until has passed, the call is like Resume.
	Pause(ctx context.Context, topic, group string, p Pause) error

	// Resume ends a pause. Within two seconds, waiting members get the messages that are due.
	// Resuming a group that is not paused is not an error.
	Resume(ctx context.Context, topic, group string) error

	// Paused returns the current pause of a group, or the zero Pause if it is not paused.
	Paused(ctx context.Context, topic, group string) (Pause, error)
}

// PauserOf returns the Pauser that b is or wraps. If there is none, the error matches
// [errors.ErrUnsupported].
func PauserOf(b Backend) (Pauser, error) {
	if p, ok := As[Pauser](b); ok {
		return p, nil
	}
	return nil, missing("pause groups")
}

// A Pause records who paused a group, why, and for how long.
type Pause struct {
	Since time.Time // when the pause began, set by the backend; zero: the group is not paused
	Until time.Time // when the pause ends by itself; zero: never
	By    string    // who paused the group, for other operators; at most MaxPauseText bytes
	Why   string    // the reason, for other operators; at most MaxPauseText bytes
}

// MaxPauseText is the largest length of Pause.By and of Pause.Why in bytes.
const MaxPauseText = 256

// Check returns an error that matches [ErrRefused] if a text of p is too long.
func (p Pause) Check() error {
	if len(p.By) > MaxPauseText || len(p.Why) > MaxPauseText {
		return fmt.Errorf("%w: by or why of a pause is longer than %d bytes", ErrRefused, MaxPauseText)
	}
	return nil
}

// A PausedError is what Receive returns for a paused group as soon as the driver knows of the
// pause, which takes at most 10 seconds. Until then Receive waits and returns no deliveries. It
// matches [ErrPaused].
type PausedError struct{ Pause Pause }

func (e *PausedError) Error() string {
	text := "the group is paused"
	if e.Pause.By != "" {
		text += " by " + e.Pause.By
	}
	if !e.Pause.Until.IsZero() {
		text += " until " + e.Pause.Until.Format(time.RFC3339)
	}
	if e.Pause.Why != "" {
		text += ": " + e.Pause.Why
	}
	return text
}

// Is reports whether target is [ErrPaused].
func (e *PausedError) Is(target error) bool { return target == ErrPaused }

// A Settler is a [Backend] whose operators can take a message away from a group. If the topic or
// the group does not exist, the error is [ErrGone].
type Settler interface {
	// Settle permanently removes one message from a group, like an Ack, no matter which member
	// holds it or whether it is delayed. If the group has certainly settled the message before,
	// had is false and nothing changes; a backend that cannot tell returns true. If the group has
	// never received the message, the error is [ErrRefused].
	//
	// Settle does not ask the holder, whose Delay, Extend and fenced Ack return [ErrLeaseLost]
	// from then on. A backend without [Limits].FencedAcks may accept them until its driver in the
	// holder's process learns of the Settle. That takes at most 10 seconds while that process
	// maintains the group or the group receives no messages. In neither case does the group get
	// the message again, unless ResetGroup makes it begin before the message.
	Settle(ctx context.Context, topic, group, position string) (had bool, err error)

	// Settled reports, for each position, whether the group has certainly settled the message and
	// will therefore not get it again unless it is reset. The result is false for a message that
	// the group holds or has not received yet, and if the backend cannot tell. It stays true for
	// at least two minutes after a Settle has returned.
	Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error)
}

// SettlerOf returns the Settler that b is or wraps. If there is none, the error matches
// [errors.ErrUnsupported].
func SettlerOf(b Backend) (Settler, error) {
	if s, ok := As[Settler](b); ok {
		return s, nil
	}
	return nil, missing("take messages away from groups")
}

// A Pinger is a [Backend] that can check whether its broker answers.
type Pinger interface {
	// Ping makes one round trip to the broker, and fails if there is no answer.
	Ping(ctx context.Context) error
}

// Ping calls [Pinger].Ping of b. If b is not a Pinger, the error matches [errors.ErrUnsupported].
func Ping(ctx context.Context, b Backend) error {
	if p, ok := As[Pinger](b); ok {
		return p.Ping(ctx)
	}
	return missing("be pinged")
}

// A Checker is a [Backend] that can find settings and states of its broker that endanger events.
type Checker interface {
	// Check inspects the broker and returns its findings, in any order. It changes nothing and
	// makes a bounded number of calls. For a part of the broker that does not answer, or that
	// this client may not inspect, it returns a Finding too. If no part answers, Check returns an
	// error.
	Check(ctx context.Context) ([]Finding, error)
}

// Check calls [Checker].Check of b. If b is not a Checker, the error matches
// [errors.ErrUnsupported].
func Check(ctx context.Context, b Backend) ([]Finding, error) {
	if c, ok := As[Checker](b); ok {
		return c.Check(ctx)
	}
	return nil, missing("check its broker")
}

// A Finding tells operators about a danger for events.
type Finding struct {
	Code     string // names the rule, such as "redis-evicts"; its meaning never changes
	Severity Severity

	// Server, Topic and Group say where the danger is. Server names a server, or one of its
	// streams or files. A field that does not apply is empty. No field of a Finding contains a
	// password.
	Server, Topic, Group string

	Text    string   // the danger, with its numbers
	Remedy  string   // what an operator can do
	Command []string // a program and its arguments that do it; empty: there is none
}

// A Severity says how urgent a [Finding] is.
type Severity int

// The severities.
const (
	SeverityNote    Severity = iota // worth knowing, and possibly intended
	SeverityWarning                 // events are in danger if something else fails, or wait for an operator
	SeverityError                   // events are lost or not handled, or can be lost at any time
)

// String returns "note", "warning" or "error".
func (s Severity) String() string {
	switch s {
	case SeverityNote:
		return "note"
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return fmt.Sprintf("severity %d", int(s))
}

// A FindingError is the error of a driver that refuses a broker because of a Finding. It matches
// [ErrRefused].
type FindingError struct{ Finding Finding }

func (e *FindingError) Error() string {
	return ErrRefused.Error() + ": " + e.Finding.Text + "; " + e.Finding.Remedy
}

// Is reports whether target is [ErrRefused].
func (e *FindingError) Is(target error) bool { return target == ErrRefused }

// An Identified is a [Backend] that names its broker. Spans and metrics show the name, so that
// two brokers of one program can be told apart.
type Identified interface {
	// Identity does not change while the backend is open, and contains neither user nor password.
	Identity() Identity
}

// An Identity names a broker in the way the program has named it. Unknown fields are zero.
type Identity struct {
	System  string // the kind of broker in lower case, such as "redis"
	Address string // the host, or the path of a Unix socket; the first of several hosts
	Port    int    // the port of Address
	Client  string // the name under which the broker shows this client to operators
}

// IdentityOf returns the identity that b or a backend that it wraps states. It is zero if none is
// [Identified].
func IdentityOf(b Backend) Identity {
	if i, ok := As[Identified](b); ok {
		return i.Identity()
	}
	return Identity{}
}

// A Driver opens backends by URL. A program passes the drivers that it uses to eventbus.Open.
type Driver interface {
	// Schemes are the URL schemes that the driver serves, the preferred one first.
	Schemes() []string

	// Open opens the backend that u names. It refuses parameters that it does not know. Its
	// errors contain neither u nor the password in u.
	Open(ctx context.Context, u *url.URL) (Backend, error)
}

// A TopicConfigurer is a [Driver] whose topics can have settings that only this driver knows,
// such as the number of replicas.
type TopicConfigurer interface {
	// ConfigureTopic returns a copy of the driver that opens backends with these settings for
	// topic. It does not connect to a broker. Its error names a setting that is unknown or has a
	// wrong value, but never shows values, because they may be secrets. The driver documents
	// whether settings apply to a topic that exists.
	ConfigureTopic(topic string, settings map[string]string) (Driver, error)
}

// A URLChecker is a [Driver] that can check a URL without connecting to a broker, for programs
// that validate their configuration before they use it.
type URLChecker interface {
	// CheckURL returns the error that Open would return for u before it connects. It checks the
	// parameters, the settings passed to ConfigureTopic, and the files that u names.
	CheckURL(u *url.URL) error
}

// MaxName is the maximum length of a topic or group name in bytes, including suffixes that the bus
// adds, such as ".dlq".
const MaxName = 200

// CheckName returns an error if name cannot be the name of a topic or a group. A name has at most
// [MaxName] bytes and consists of one or more tokens, joined by dots. A token is one or more of
// the letters A-Z and a-z, digits, underscores and hyphens. The bus checks every name before it
// calls a driver.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxName:
		return fmt.Errorf("has %d bytes, more than %d", len(name), MaxName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return fmt.Errorf("%q has an empty token between dots", name)
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		default:
			return fmt.Errorf("%q contains %q; allowed are letters, digits, '_' and '-', joined by '.'", name, r)
		}
	}
	return nil
}

// As returns v, a [Backend] or a [Source], as a T, which is an optional interface such as
// [Delayer]. If v does not implement T, As tries the value that v wraps, and so on, and returns
// false if none of them implements T. A wrapper has a method Unwrap() Backend or Unwrap() Source.
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

// missing returns an error that matches [errors.ErrUnsupported]. verb is what a backend without
// the optional interface cannot do, such as "read topics".
func missing(verb string) error {
	return fmt.Errorf("this backend cannot %s: %w", verb, errors.ErrUnsupported)
}
