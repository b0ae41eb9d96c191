package eventbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/each"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
	"github.com/seed41896749/eventbus/limiter"
)

// A Subscriber subscribes handlers to topics. A [Bus] is one.
type Subscriber interface {
	// Subscribe makes h a member of the group o.Group of topic; see [Bus.Subscribe].
	Subscribe(ctx context.Context, topic string, o SubscribeOptions, h Handler) (*Subscription, error)
}

// A ManualSubscriber subscribes handlers for programs that settle events themselves. A [Bus] is
// one.
type ManualSubscriber interface {
	// SubscribeManual is like Subscribe, but the program settles each [ManualDelivery].
	SubscribeManual(ctx context.Context, topic string, o SubscribeOptions, h ManualHandler) (*Subscription, error)
}

// Subscribe makes h a member of the group o.Group. Each group gets every event of topic, and
// delivers it to one of its members.
//
// Subscribe returns when the group exists, so a group with StartLatest gets the next event that
// is published. ctx bounds the call; the contexts of handlers have its values, but do not end
// with it. Subscribe does not retry if the broker fails, but a running subscription recovers from
// temporary failures by itself. If the backend can declare topics, Subscribe declares the
// dead-letter topic, and fails if this program may not write to it.
//
// # Many topics
//
// A subscription can read many topics. Pass a pattern as topic, or leave topic empty and list
// names and patterns in o.Topics. In a pattern, "*" matches one part of a name, and ">" at the
// end matches one or more: "orders.*" matches "orders.eu", and "orders.>" matches
// "orders.eu.north" as well. A wildcard never matches the parts "dlq", "later", "lifecycle",
// "replies" and "partitions" that the bus appends to names, but a pattern may spell them out.
//
// The topics share the handlers and all limits of o. Each topic keeps its own order and has its
// own dead-letter topic, and one that fails does not hold up the others. Delivery.Topic says
// which topic an event came from.
//
// Subscribe attaches to the topics that exist. It finds topics that appear later within two
// seconds, and delivers them from their first event, even with StartLatest. A topic of a pattern
// that is deleted leaves the subscription, which the observer's Noticed hook reports. If a topic
// of a pattern cannot be attached, the subscription is observer.Degraded and keeps trying. If the
// backend is not a backend.Admin, Subscribe refuses patterns with a *FieldError that matches
// errors.ErrUnsupported.
//
// Some backends let only a limited number of topics wait for events at the same time
// (Limits.Receivers). On these, an event in a topic that was idle may wait for about a second.
func (b *Bus) Subscribe(ctx context.Context, topic string, o SubscribeOptions, h Handler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	mode, err := o.Ack.mode()
	if err != nil {
		return nil, err
	}
	return b.subscribe(ctx, member{topic: topic, o: o, mode: mode, h: h})
}

// SubscribeManual is like [Bus.Subscribe] for a program that settles events itself, later and
// from any goroutine; see [ManualDelivery]. SubscribeOptions.Ack must be AckOnSuccess.
//
// Options.Middleware wraps the call of h. A middleware may replace the context and pass on a copy
// of the Delivery. If it passes on a Delivery of its own making, the event fails without a call
// of h.
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o SubscribeOptions, h ManualHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	if o.Ack != AckOnSuccess {
		return nil, &FieldError{Field: "SubscribeOptions.Ack", Reason: "is set, but with SubscribeManual the program settles events"}
	}
	return b.subscribe(ctx, member{topic: topic, o: o, mode: engine.Manual, h: func(ctx context.Context, d *Delivery) error {
		if d.run == nil {
			return errNewDelivery
		}
		return h(ctx, &ManualDelivery{Delivery: d, run: d.run})
	}})
}

// SubscribeOptions configure a subscription. Group is required. Every other zero field means its
// default.
type SubscribeOptions struct {
	Group string // members of one group share its events, and every group gets all of them; see EachInstance

	// Topics are the names and patterns of a subscription to many topics; see Bus.Subscribe. The
	// topic passed to Subscribe must then be empty.
	Topics []string

	Ack   AckMode // default AckOnSuccess
	Order Order   // default OrderByKey
	Start Start   // default StartEarliest; with EachInstance, StartLatest

	// Concurrency is the number of handlers that may run at the same time. Default 1.
	//
	// If MaxConcurrency is greater, the number can change at run time, by
	// [Subscription.SetConcurrency] or package scale: it starts at Concurrency, which is also its
	// minimum, and MaxConcurrency is its maximum. Default of MaxConcurrency: Concurrency, so that
	// the number is fixed.
	Concurrency    int
	MaxConcurrency int

	// MaxRedelivered limits how many handlers run redelivered events (Delivery.Redelivered) at
	// the same time, so that some handlers stay free for new events during many retries or after
	// another member has died. It must be less than Concurrency. A redelivered event above the
	// limit waits until another one has finished; if that takes more than a second, it waits in
	// steps of up to ten seconds. Later events of its key wait too. Waiting does not count as an
	// attempt. Default: no limit.
	MaxRedelivered int

	// MaxInFlight limits how many events the subscription holds: running, waiting to run, or
	// waiting to be settled. Default 1,024, or MaxConcurrency if that is more. If many events
	// wait behind an unfinished event of their key, the subscription holds up to 16 times as many
	// in addition, so that other keys can make progress. MaxBytes limits the total size of all
	// these events; a single event may exceed it. Default 64 MiB; negative means no
	// limit.
	MaxInFlight int
	MaxBytes    int64

	// Limiter grants a slot for each event before the bus reads the event, in addition to
	// MaxInFlight and MaxBytes. Subscriptions with the same Limiter share its slots, and each of
	// them keeps one for every idle handler. A shared limiter.MaxInFlight must therefore be
	// greater than the sum of their Concurrency. Default: none.
	Limiter limiter.Limiter

	// Lease is how long the broker waits for a silent member before it redelivers that member's
	// events. At least 100 ms; default 30 s. The bus keeps extending the leases of all events that
	// it holds, so a handler may run for longer than Lease. In a topic with partitions, Lease is
	// how long the group waits for a silent owner, at least 3 s, and the leases of events are half
	// as long.
	Lease time.Duration

	// Timeout bounds one run of the handler. With SubscribeManual it bounds the time until the
	// event is settled. Default Options.Timeout, which is a minute; negative means no limit. If the
	// backend cannot extend leases, Timeout must be less than Lease.
	Timeout time.Duration

	// LeaveTimeouts leaves an event whose run timed out to its lease. The lease is no longer
	// extended, and the event is redelivered once it has expired, unless this attempt was the
	// last. Later events of its key do not wait for it. Default: a timeout is a failure like any
	// other.
	LeaveTimeouts bool

	// Retry says how often and when failed events are retried.
	Retry Retry

	// MaxReceive is the size of the largest event that reaches the handler, in bytes of payload,
	// ID, key and headers. A larger event goes to the dead-letter topic without a run. Default 10
	// MiB; negative means no limit.
	MaxReceive int64

	// DeadLetterExpired sends expired events (Event.TTL) to the dead-letter topic. By default
	// they are discarded. Either way, no handler gets them.
	DeadLetterExpired bool

	// DeadLetterOnReceive sends an event to the dead-letter topic if its run fails after
	// AckOnReceive has acknowledged it. By default such an event is discarded. If the dead letter
	// cannot be stored, the bus keeps trying for the length of a lease and then discards the
	// event, which counts toward MaxInFlight until then. The event is lost if the process ends
	// before the dead letter is stored.
	DeadLetterOnReceive bool

	// OnFailure says what happens to the later events of a key or, with OrderTotal, of the topic,
	// after an event has failed for good. Default Skip.
	OnFailure OnFailure

	// DeadLetter is the topic for events that fail for good. See DiscardDeadLetters to have none.
	// Default: the name of the event's topic with ".dlq" appended, and with EachInstance
	// DiscardDeadLetters. It is required if the name of a topic itself ends with ".dlq".
	DeadLetter string

	// OnDeadLetter is called for each event that has failed for good, after the event was stored
	// in DeadLetter or discarded because of DiscardDeadLetters. It runs on the goroutine of the
	// observer's hooks, and settlement does not wait for it. If that goroutine cannot keep up,
	// calls are dropped and counted; see observer.ErrDropped.
	OnDeadLetter func(e *Event, why DeadLetter)
	payload      payloadType // set by the methods of Topic; zero: any
	batch        int         // Batch.MaxSize, set by Batch.Options; zero: single events
}

// Effective returns o with every zero field replaced by its default, as Subscribe does for topic
// on a bus with zero Options. With many topics DeadLetter may stay empty, because each topic has
// a default of its own. The error is the *FieldError with which Subscribe would refuse o. Only
// Subscribe itself checks Ack, and checks o against the bus and its backend.
func (o SubscribeOptions) Effective(topic string) (SubscribeOptions, error) {
	topics, err := o.topics(topic)
	if err == nil {
		o, err = o.withDefaults(topics)
	}
	if err == nil {
		err = o.check(topics)
	}
	return o, err
}

// Start says where a new group begins. A group that exists continues at its position.
type Start = backend.Start

// Values of Start. A group can also begin at a time (see [StartAt]) or after a position (see
// [backend.StartAfter]).
const (
	StartEarliest Start = ""       // with the oldest event that the topic keeps
	StartLatest   Start = "latest" // with the first event published after Subscribe has returned
)

// StartAt returns the Start of a group that begins with the first event stored at t or later, by
// the broker's clock; see [backend.StartAt].
func StartAt(t time.Time) Start { return backend.StartAt(t) }

// EachInstance, as SubscribeOptions.Group, gives the subscription a group of its own, so that
// every instance of a program gets every event, for example to drop an entry from its cache.
// Events are delivered at least once to each living instance, with retries and key order as
// usual. By default the group begins with the next event (StartLatest) and discards events that
// fail for good.
//
// The group ends with the subscription, and nothing is kept for it. After a crash the broker
// keeps events for it for at most ten leases. A backend that does not state
// backend.Limits.Ephemeral keeps the group after a crash until an operator deletes it. The name
// of the group, as in Subscription.Group and Delivery.Group, is random and begins with "each-".
const EachInstance = each.Group

// DiscardDeadLetters, as SubscribeOptions.DeadLetter, discards events that fail for good: each is
// acknowledged, counted as discarded, and reported to the observer.
const DiscardDeadLetters = "(discard)"

// AckMode says when an event is acknowledged, and thereby whether delivery is at least once or at
// most once.
type AckMode uint8

const (
	// AckOnSuccess acknowledges an event after its handler has returned nil: at least once.
	AckOnSuccess AckMode = iota

	// AckOnReceive acknowledges an event just before its handler runs: at most once. The handler
	// runs only if the acknowledgement is confirmed within the lease. An event whose handler
	// fails is counted as discarded, unless DeadLetterOnReceive is set.
	AckOnReceive
)

// String returns the name of a in configuration files, such as "on-success".
func (a AckMode) String() string { return enumText(a, "on-success", "on-receive") }

// Order says which events wait for others within one member of a group. In a topic with
// partitions (TopicOptions.Partitions) the order holds across the whole group.
type Order uint8

const (
	// OrderByKey handles the events of a Key one after another, retries included: while an event
	// waits for its retry, later events of its key wait too. Events without a key wait for no
	// other event.
	OrderByKey Order = iota

	// Unordered handles events in any order: no event waits for another.
	Unordered

	// OrderTotal handles one event after another, retries included. Concurrency must be 1. If the
	// topic has partitions, it must have exactly one.
	OrderTotal
)

// String returns the name of o in configuration files, such as "by-key".
func (o Order) String() string { return enumText(o, "by-key", "none", "total") }

// OnFailure says what happens to the later events of a key after an event of the key has failed
// for good and become a dead letter.
type OnFailure uint8

const (
	// Skip handles the later events as usual. They do not wait until the dead letter of the
	// failed event is stored.
	Skip OnFailure = iota

	// FailAll sends every later event of the key that reaches this member to the dead-letter
	// topic too, in order and without a run, until the program calls [Subscription.ReleaseKey].
	// Use it if later events make no sense without the failed one. Each of these events is
	// counted and reported as dead-lettered, with the reason "key-failed".
	//
	// The member remembers failed keys in memory, so a restart forgets them. In a topic with
	// partitions, unless EachInstance is used, the broker stores the first 1,000 failed keys of
	// each partition, and the next owner of the partition knows them.
	FailAll
)

// String returns the name of f in configuration files, such as "fail-all".
func (f OnFailure) String() string { return enumText(f, "skip", "fail-all") }

// enumText returns the text for v, one of a series of constants from 0.
func enumText[T ~uint8](v T, words ...string) string {
	if int(v) < len(words) {
		return words[v]
	}
	return strconv.Itoa(int(v))
}

func (o SubscribeOptions) withDefaults(topics topics) (SubscribeOptions, error) {
	setDefault(&o.Concurrency, 1)
	setDefault(&o.MaxConcurrency, o.Concurrency)
	setDefault(&o.MaxInFlight, max(1024, o.MaxConcurrency))
	setDefault(&o.MaxBytes, 64<<20)
	setDefault(&o.MaxReceive, 10<<20)
	setDefault(&o.Lease, 30*time.Second)
	setDefault(&o.Timeout, time.Minute)
	o.Retry = o.Retry.withDefaults()
	if o.Group == EachInstance {
		setDefault(&o.Start, StartLatest)
		setDefault(&o.DeadLetter, DiscardDeadLetters)
	}
	if o.DeadLetter != "" {
		return o, nil
	}
	for _, t := range topics {
		if strings.HasSuffix(t, deadLetterSuffix) {
			return o, &FieldError{
				Field:  "SubscribeOptions.DeadLetter",
				Reason: "is required, because " + t + " is itself a dead-letter topic",
			}
		}
	}
	if !topics.many() {
		o.DeadLetter = topics[0] + deadLetterSuffix
	}
	return o, nil
}

const deadLetterSuffix = ".dlq"

func (o SubscribeOptions) check(topics topics) error {
	bad := func(field, reason string) error {
		return &FieldError{Field: "SubscribeOptions." + field, Reason: reason}
	}
	if o.Group == "" {
		return bad("Group", "is empty; "+EachInstance+" gives each member a group of its own")
	}
	if err := backend.CheckName(o.Group); err != nil && o.Group != EachInstance {
		return bad("Group", err.Error())
	}
	if o.DeadLetter != DiscardDeadLetters {
		if reason := topics.refuses(o.DeadLetter); reason != "" {
			return bad("DeadLetter", reason)
		}
	}
	_, after := o.Start.After()
	_, at := o.Start.At()
	switch {
	case o.Order > OrderTotal:
		return bad("Order", fmt.Sprintf("is %d, which is not an Order", o.Order))
	case o.OnFailure > FailAll:
		return bad("OnFailure", fmt.Sprintf("is %d, which is not an OnFailure", o.OnFailure))
	case o.OnFailure == FailAll && o.Order == Unordered:
		return bad("OnFailure", "is FailAll, which needs an order")
	case o.OnFailure == FailAll && o.Ack == AckOnReceive:
		return bad("OnFailure", "is FailAll, but events are acknowledged before they run (AckOnReceive)")
	case o.Start != StartEarliest && o.Start != StartLatest && !after && !at:
		return bad("Start", fmt.Sprintf("is %q, which is not a Start", o.Start))
	case after && topics.many():
		return bad("Start", "is a position, but each of many topics has its own positions")
	case o.Concurrency < 0:
		return bad("Concurrency", "is negative")
	case o.MaxConcurrency < o.Concurrency:
		return bad("MaxConcurrency", fmt.Sprintf("is %d, less than Concurrency, %d", o.MaxConcurrency, o.Concurrency))
	case o.Order == OrderTotal && o.MaxConcurrency > 1:
		return bad("Concurrency", fmt.Sprintf("is %d, but total order needs 1", o.MaxConcurrency))
	case o.MaxRedelivered < 0:
		return bad("MaxRedelivered", "is negative")
	case o.MaxRedelivered >= max(o.Concurrency, 1)*max(o.batch, 1):
		return bad("MaxRedelivered", fmt.Sprintf("is %d, which is not less than Concurrency, %d", o.MaxRedelivered, o.Concurrency))
	case o.MaxInFlight < 0:
		return bad("MaxInFlight", "is negative")
	case o.MaxInFlight < o.MaxConcurrency:
		return bad("MaxInFlight", fmt.Sprintf("is %d, less than Concurrency, %d", o.MaxInFlight, o.MaxConcurrency))
	case o.DeadLetterOnReceive && o.Ack != AckOnReceive:
		return bad("DeadLetterOnReceive", "is set, but Ack is not AckOnReceive")
	case o.DeadLetterOnReceive && o.DeadLetter == DiscardDeadLetters:
		return bad("DeadLetterOnReceive", "is set, but DeadLetter discards events")
	case o.DeadLetterExpired && o.Ack == AckOnReceive:
		return bad("DeadLetterExpired", "is set, but events are acknowledged before they run (AckOnReceive)")
	case o.LeaveTimeouts && slices.ContainsFunc(o.Retry.Rules, func(r RetryRule) bool { return r.Class == "timeout" }):
		return bad("LeaveTimeouts", "is set, but Retry.Rules has a rule for timeouts")
	case o.Lease < minLease:
		return bad("Lease", fmt.Sprintf("is %v, less than %v", o.Lease, minLease))
	}
	return o.Retry.check()
}

// minLease is the shortest Lease. It leaves enough time to extend the lease on any broker.
const minLease = 100 * time.Millisecond

// topics are the names and patterns of the topics of a subscription, at least one.
type topics []string

// topics returns the topics of a subscription from the argument of Subscribe and o.Topics, only
// one of which may be set.
func (o SubscribeOptions) topics(topic string) (topics, error) {
	all, field := topics{topic}, o.topicField()
	if len(o.Topics) > 0 {
		all = slices.Clone(o.Topics)
		if topic != "" {
			return nil, &FieldError{Field: field, Reason: "is set, but so is the topic argument: " + topic}
		}
	}
	for i, t := range all {
		if err := pattern.Check(t); err != nil {
			return nil, &FieldError{Field: field, Reason: err.Error()}
		}
		if partition.Reserved(t) {
			return nil, &FieldError{Field: field, Reason: t + " is reserved for the partitions of a topic"}
		}
		if slices.Contains(all[:i], t) {
			return nil, &FieldError{Field: field, Reason: fmt.Sprintf("has %q twice", t)}
		}
	}
	return all, nil
}

// topicField returns the name of the field that sets the topics, for errors.
func (o SubscribeOptions) topicField() string {
	if len(o.Topics) > 0 {
		return "SubscribeOptions.Topics"
	}
	return "topic"
}

// many reports whether the subscription may have more than one topic.
func (t topics) many() bool { return len(t) > 1 || pattern.Is(t[0]) }

func (t topics) String() string { return strings.Join(t, ",") }

// overlap reports whether some topic may be in both t and other.
func (t topics) overlap(other topics) bool {
	return slices.ContainsFunc(t, func(x string) bool {
		return slices.ContainsFunc(other, func(y string) bool { return pattern.Overlap(x, y) })
	})
}

// refuses returns why name cannot be the dead-letter topic of t, or "". An empty name means that
// each topic has its own.
func (t topics) refuses(name string) (reason string) {
	if name == "" && t.many() {
		for _, topic := range t {
			if err := pattern.Check(topic + deadLetterSuffix); err != nil && !pattern.Is(topic) {
				return err.Error()
			}
		}
		return ""
	}
	if err := backend.CheckName(name); err != nil {
		return err.Error()
	}
	for _, topic := range t {
		switch {
		case topic == name && !t.many():
			return "is the topic itself"
		case pattern.Match(topic, name):
			return fmt.Sprintf("is %s, which is one of the topics, %v", name, t)
		}
	}
	return ""
}

// subscribe adds m to its group, unless the group already has a member on this bus that handles
// another type.
func (b *Bus) subscribe(ctx context.Context, m member) (*Subscription, error) {
	if m.o.payload == (payloadType{}) || m.o.Group == EachInstance {
		return m.addTo(ctx, b)
	}
	topics, err := m.o.topics(m.topic)
	if err != nil {
		return nil, err
	}
	typed, err := b.typed.add(topics, m.o.Group, m.o.payload)
	if err != nil {
		return nil, err
	}
	s, err := m.addTo(ctx, b)
	b.typed.began(typed, s)
	return s, err
}

// A member is what one call of Subscribe adds to a group.
type member struct {
	topic string
	o     SubscribeOptions
	mode  engine.Mode
	h     Handler      // for single events
	batch Batch        // valid if calls is set
	calls BatchHandler // for batches; nil: h handles single events
}

// addTo adds m to its group.
func (m member) addTo(ctx context.Context, b *Bus) (*Subscription, error) {
	c, err := m.config(b)
	if err != nil {
		return nil, err
	}
	o := m.o
	if m.calls != nil {
		c.Batch, err = b.options.batches(m)
	} else {
		c.Handle, err = b.options.singles(m)
	}
	if err != nil {
		return nil, err
	}
	s, err := b.engine.Subscribe(ctx, c)
	if errors.Is(err, engine.ErrNeedsExtender) {
		return nil, &FieldError{
			Field: "SubscribeOptions.Timeout", Err: errors.ErrUnsupported,
			Reason: fmt.Sprintf("plus Batch.MaxWait must be less than Lease, %v: %v", o.Lease, engine.ErrNeedsExtender),
		}
	}
	if errors.Is(err, engine.ErrNeedsAdmin) {
		return nil, &FieldError{Field: m.o.topicField(), Reason: "has a pattern, but the backend cannot list topics", Err: errors.ErrUnsupported}
	}
	if err != nil {
		return nil, &Error{Op: "subscribe", Topic: c.Topic, Group: o.Group, Err: err}
	}
	return &Subscription{s: s}, nil
}

// config fills in the defaults of m, and returns its configuration without a handler.
func (m *member) config(b *Bus) (c engine.Config, err error) {
	topics, err := m.o.topics(m.topic)
	if err != nil {
		return c, err
	}
	setDefault(&m.o.Timeout, b.options.Timeout)
	o, err := m.o.Effective(m.topic)
	if err == nil {
		err = o.Retry.checkRules(b.options.ErrorClasses)
	}
	if err != nil {
		return c, err
	}
	n, err := b.options.partitionsOf(topics, o)
	if err != nil {
		return c, err
	}
	ephemeral := o.Group == EachInstance
	if ephemeral {
		o.Group = each.New()
	}
	m.o = o
	c = o.config(topics, m.mode, b.options.ErrorClasses, b.engine.Guard)
	c.Ephemeral, c.Options = ephemeral, o
	if n > 0 {
		c.Divide(n)
	}
	return c, nil
}

func (o SubscribeOptions) config(topics topics, mode engine.Mode, classes []ErrorClass, guard func(limiter.Limiter) limiter.Limiter) engine.Config {
	c := engine.Config{
		Topic: strings.Join(topics, ","), Topics: topics, Group: o.Group, Mode: mode, Start: o.Start,
		Concurrency: o.Concurrency, MaxConcurrency: o.MaxConcurrency, MaxRedelivered: o.MaxRedelivered, MaxInFlight: o.MaxInFlight, Limiter: limiter.Both(o.MaxInFlight, o.MaxBytes),
		Lease: o.Lease, Timeout: max(o.Timeout, 0),
		Policy: o.Retry.policy(o.Group, classes), MaxReceive: o.MaxReceive,
		FailAll: o.OnFailure == FailAll,
	}
	switch o.Order {
	case OrderByKey:
		c.Order = engine.ByKey
	case Unordered:
		c.Order = engine.Unordered
	case OrderTotal:
		c.Order = engine.Total
	}
	if o.DeadLetter != DiscardDeadLetters {
		c.DeadLetter, c.DeadLetterSuffix = o.DeadLetter, deadLetterSuffix
	}
	c.Policy.LeaveTimeouts, c.Policy.BuryReceived = o.LeaveTimeouts, o.DeadLetterOnReceive
	if o.OnDeadLetter != nil {
		c.Buried = func(dead *backend.Message) {
			stored := EventOf(dead)
			why, _ := DeadLetterOf(&stored)
			e := EventOf(letter.Event(dead))
			o.OnDeadLetter(&e, why)
		}
	}
	if o.Limiter != nil {
		c.Limiter = limiter.All(c.Limiter, guard(o.Limiter))
	}
	return c
}

// mode returns the engine.Mode for a.
func (a AckMode) mode() (engine.Mode, error) {
	switch a {
	case AckOnSuccess:
		return engine.OnSuccess, nil
	case AckOnReceive:
		return engine.OnReceive, nil
	}
	return 0, &FieldError{Field: "SubscribeOptions.Ack", Reason: fmt.Sprintf("is %d, which is not an AckMode", a)}
}

// singles returns the handler of single events of m in the form that the engine takes.
func (o Options) singles(m member) (func(context.Context, *engine.Run) error, error) {
	h, err := o.wrap(func(ctx context.Context, d *Delivery) error {
		if err := d.expired(m.o.DeadLetterExpired); err != nil { // it may have expired while a middleware waited
			return err
		}
		return m.h(ctx, d)
	})
	return func(ctx context.Context, run *engine.Run) error {
		d, err := m.deliver(run)
		if err != nil {
			return err
		}
		return h(ctx, d)
	}, err
}

// deliver returns the Delivery of a run, or an error if the event has expired.
func (m *member) deliver(run *engine.Run) (*Delivery, error) {
	d := delivery(m.o.Group, run.Hold())
	if d.Manual = m.mode == engine.Manual; d.Manual {
		d.run = run
	}
	if d.TTL > 0 {
		if at := expiry(&run.Delivery().Message); time.Now().After(at) {
			return nil, engine.Expired(at, m.o.DeadLetterExpired)
		}
	}
	d.MaxAttempts = m.attempts(d)
	return d, nil
}

// attempts returns the MaxAttempts of d.
func (m *member) attempts(d *Delivery) int {
	switch {
	case m.mode == engine.OnReceive:
		return 1
	case d.Retry != nil && d.Retry.MaxAttempts != 0:
		return max(d.Retry.MaxAttempts, 0)
	}
	return max(m.o.Retry.MaxAttempts, 0)
}
