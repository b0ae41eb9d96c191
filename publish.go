package eventbus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/publish"
)

// A Publisher stores events. Code that only publishes should depend on a Publisher rather than on
// a [Bus], so that tests can replace it.
type Publisher interface {
	// Publish stores events in topic, in the order given. It returns when all of them are stored
	// as durably as the backend can store them. The error is a *FieldError or a *PublishError,
	// see [Bus.Publish]. A Bus neither changes nor retains the events.
	Publish(ctx context.Context, topic string, events ...*Event) error
}

// A PublisherFunc is a function that serves as a [Publisher].
type PublisherFunc func(ctx context.Context, topic string, events ...*Event) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, topic string, events ...*Event) error {
	return f(ctx, topic, events...)
}

// A PublishMiddleware wraps a [Publisher]. It receives copies of the program's events, none of
// them nil, with ID, Source and Time set. It may change these copies, except for the bytes of
// Payload and the fields of Retry, which the copies share with the program's events. It must pass
// on its context or one derived from it, because [Bus.PublishReceipts] finds its receipts through
// the context.
type PublishMiddleware func(Publisher) Publisher

// Publish stores events in topic, in the order given, and returns when all of them are stored as
// durably as the backend can store them. Concurrent calls share round trips to the broker, so
// publishing from many goroutines is fast.
//
// Publish checks all events before it stores any. If a field is wrong, the error is a *FieldError
// that names it. Any other failure is a *PublishError with an entry for each event. If ctx ends
// before an event was sent, the event is certainly not stored. If ctx ends later, the event's
// error matches both ErrUnknownOutcome and ctx.Err().
//
// While the backend is unavailable, Publish tries again until ctx ends or Options.PublishTimeout
// has passed. It repeats only events that are certainly not stored, and with Options.Dedup also
// events of unknown outcome. It gives up as soon as another try could change the order of a key.
//
// The events of one topic and key that one goroutine publishes are stored in the order of its
// calls. This is true even if an earlier call gave up while its events were on their way: a later
// call with the same key then waits until the earlier write has ended, while other calls do not
// wait.
//
// A topic, a connection or a shard that hangs does not hold up the others: a call waits at most
// 100 ms for a call to the backend that carries other events and does not return. A topic that
// hangs is then written apart from the others, by at most twice Limits.Publishers writes, until
// the backend answers. This holds while at most 16 times Limits.Publishers writes hang. Calls
// that were joined to a write before it hung share its outcome. All calls count toward
// MaxPending.
//
// Publish neither changes nor retains the events. It stores an event without ID, Source or Time
// with a new ID, Options.Service and the current time; [Bus.PublishReceipts] returns the ID and
// the time. You may therefore publish the same *Event again, even concurrently. Each time it is
// another event, unless you have set its ID.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*Event) error {
	if b.publish == nil {
		return b.store(ctx, topic, events, nil, publishTime{})
	}
	return b.publishCopies(ctx, topic, events, nil, publishTime{})
}

// A ReceiptPublisher stores events and returns receipts. A [Bus] is one.
type ReceiptPublisher interface {
	// PublishReceipts stores events in topic and returns a receipt for each; see
	// [Bus.PublishReceipts].
	PublishReceipts(ctx context.Context, topic string, events ...*Event) ([]Receipt, error)
}

// A Receipt says how one event was published.
type Receipt struct {
	// ID is the ID of the event, a new one if the program set none. To publish the event again
	// after a failure, set this ID, so that Options.Dedup recognizes the event.
	ID string

	Position  string    // where the event is stored (see Event.Position); empty if the event is not stored, or may not be
	Time      time.Time // the Time of the event; if the program set none, the time of the call
	Duplicate bool      // the topic already had an event with this ID (see Options.Dedup); Position may be empty
}

// PublishReceipts is like [Bus.Publish], and returns a receipt for each event, in the order of
// the events. With a *PublishError, the receipt of an event that was not stored has only ID and
// Time. With any other error the receipts may be zero.
//
// A receipt shows the event as Options.PublishMiddleware has changed it. If a middleware
// publishes another event in its place, publishes later, or does not pass on its context, the
// receipt has no Position.
func (b *Bus) PublishReceipts(ctx context.Context, topic string, events ...*Event) ([]Receipt, error) {
	receipts := make([]Receipt, len(events))
	if b.publish == nil {
		return receipts, b.store(ctx, topic, events, receipts, publishTime{})
	}
	return receipts, b.publishCopies(ctx, topic, events, receipts, publishTime{})
}

// An Addressed is an event with the topic in which to publish it.
type Addressed struct {
	Topic string
	Event *Event
}

// A Result says how [PublishAll] has published one event.
type Result struct {
	Receipt       // with an error, only ID and Time are set, or nothing
	Err     error // nil if the event is stored; a *FieldError if it is refused
}

// PublishAll publishes events of any number of topics and returns their results in the same
// order. An event that p would refuse fails alone, and the others are published. Events of one
// topic keep their order, as in one call of p.PublishReceipts per topic. The calls for different
// topics run at the same time.
func PublishAll(ctx context.Context, p ReceiptPublisher, events ...Addressed) []Result {
	results := make([]Result, len(events))
	calls := map[string][]int{} // by topic: the indexes of its events
	for i, a := range events {
		if _, err := messageOf(a.Topic, a.Event, math.MaxInt); err != nil {
			results[i].Err = err
			continue
		}
		calls[a.Topic] = append(calls[a.Topic], i)
	}
	var wg sync.WaitGroup
	for topic, indexes := range calls {
		wg.Go(func() { publishSome(ctx, p, topic, events, indexes, results) })
	}
	wg.Wait()
	return results
}

// publishSome publishes the events of one topic and sets their results. If p refuses one of them,
// publishSome publishes them one by one, so that only that event fails.
func publishSome(ctx context.Context, p ReceiptPublisher, topic string, events []Addressed, indexes []int, results []Result) {
	some := make([]*Event, len(indexes))
	for i, at := range indexes {
		some[i] = events[at].Event
	}
	receipts, err := p.PublishReceipts(ctx, topic, some...)
	if _, refused := errors.AsType[*FieldError](err); refused && len(some) > 1 {
		for _, at := range indexes {
			publishSome(ctx, p, topic, events, []int{at}, results)
		}
		return
	}
	failed, each := errors.AsType[*PublishError](err)
	for i, at := range indexes {
		if i < len(receipts) {
			results[at].Receipt = receipts[i]
		}
		if results[at].Err = err; each {
			results[at].Err = backend.ErrorAt(backend.BatchError(failed.Errors), i)
		}
	}
}

// WhenFull says what Publish does when Options.MaxPending or Options.MaxPendingBytes is reached.
type WhenFull uint8

const (
	// WaitWhenFull makes Publish wait until there is room. Calls get room in the order in which
	// they began.
	WaitWhenFull WhenFull = iota

	// RejectWhenFull makes Publish return ErrBackpressure at once.
	RejectWhenFull

	// DropNewest drops the events of the new call: Publish returns ErrDropped at once.
	DropNewest

	// DropOldest drops the events of the calls that have waited longest, which then return
	// ErrDropped. It drops only events that are certainly not stored. If that does not make
	// enough room, it drops the events of the new call. A dropped event leaves no dead letter,
	// but Bus.Dropped counts it and Observer.Dropped reports it.
	DropOldest
)

// String returns the text for w in a configuration file, such as "drop-oldest".
func (w WhenFull) String() string { return enumText(w, "wait", "reject", "drop-newest", "drop-oldest") }

var whenFull = map[WhenFull]publish.WhenFull{
	WaitWhenFull: publish.Wait, RejectWhenFull: publish.Reject, DropNewest: publish.DropNewest, DropOldest: publish.DropOldest,
}

// store does the work of Publish, inside any middleware. If receipts is not nil, it has one
// element per event, which store sets.
func (b *Bus) store(ctx context.Context, topic string, events []*Event, receipts []Receipt, w publishTime) error {
	s := encoders.Get().(*encoder)
	if err := s.check(b, topic, events, w); err != nil || len(events) == 0 {
		encoders.Put(s)
		return err
	}
	s.encode(b, topic, events, receipts)
	var err error
	switch {
	case w.entry != nil:
		err = w.entry(ctx, s.pointers[0])
	case !w.due.IsZero():
		s.schedule(w.due, events)
		err = b.engine.Publish(ctx, s.pointers)
	default:
		err = b.engine.Publish(ctx, s.pointers)
	}
	for i := range receipts {
		if m := &s.messages[i]; backend.ErrorAt(err, i) == nil {
			receipts[i].Position, receipts[i].Duplicate = m.Position, m.Duplicate
		}
	}
	if err == nil { // after an error, a write to the broker may still be reading the messages of s
		s.recycle()
		return nil
	}
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = backend.ErrorAt(err, i)
	}
	return &PublishError{Topic: topic, Errors: errs}
}

// check returns the error with which Publish refuses these events, or nil.
func (s *encoder) check(b *Bus, topic string, events []*Event, w publishTime) error {
	if topic != s.topic || topic == "" {
		if err := checkTopic(topic); err != nil {
			return err
		}
		s.topic = topic
	}
	for i, e := range events {
		if err := e.check(i, b.options.MaxPayload); err != nil {
			return err
		}
		if e.Once != "" && b.engine.Limits().OnceWindow == 0 {
			return &FieldError{Field: fmt.Sprintf("events[%d].Once", i), Reason: "is set, but the backend does not remember such texts"}
		}
		if e.AtPosition == "" {
			continue
		}
		if !b.engine.Limits().Positions {
			return &FieldError{Field: fmt.Sprintf("events[%d].AtPosition", i), Reason: "is set, but the backend chooses the position", Err: errors.ErrUnsupported}
		}
		if w.entry != nil || !w.due.IsZero() {
			return &FieldError{Field: fmt.Sprintf("events[%d].AtPosition", i), Reason: "is set, but a scheduled event has no position yet"}
		}
	}
	return nil
}

func checkTopic(topic string) error {
	if err := backend.CheckName(topic); err != nil {
		return &FieldError{Field: "topic", Reason: err.Error()}
	}
	if partition.Reserved(topic) {
		return &FieldError{Field: "topic", Reason: topic + " is reserved for the partitions of a topic"}
	}
	return nil
}

// wrapPublisher returns p wrapped in o.PublishMiddleware, the first outermost.
func (o Options) wrapPublisher(p Publisher) (Publisher, error) {
	for i, m := range slices.Backward(o.PublishMiddleware) {
		if p = m(p); p == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.PublishMiddleware[%d]", i), Reason: "returned nil"}
		}
	}
	return p, nil
}

// publishCopies passes copies of events, with ID, Source and Time set, through the middleware. If
// receipts is not nil, publishCopies sets its elements.
func (b *Bus) publishCopies(ctx context.Context, topic string, events []*Event, receipts []Receipt, w publishTime) error {
	if i := slices.Index(events, nil); i >= 0 {
		return events[i].check(i, 0)
	}
	copies, pointers := make([]Event, len(events)), make([]*Event, len(events))
	s, now := encoders.Get().(*encoder), time.Now()
	for i, e := range events {
		copies[i], pointers[i] = *e, &copies[i]
		copies[i].Headers = slices.Clone(e.Headers)
		s.fill(&copies[i], b.options.Service, now)
	}
	encoders.Put(s)
	p := publishCall{when: w} // a value of its own, even if a middleware of another call made this call
	if receipts != nil {
		p.receipts = &receiptCollector{}
	}
	err := b.publish.Publish(context.WithValue(ctx, publishCallKey{b}, p), topic, pointers...)
	p.receipts.fill(receipts, copies)
	return err
}

// A publishCall travels through the middleware in the context of its call, because Publish takes
// only events and returns only an error.
type publishCall struct {
	receipts *receiptCollector // nil: the caller wants no receipts
	when     publishTime
}

type publishCallKey struct{ bus *Bus }

// storeCopies is the Publish that the middleware wraps.
func storeCopies(ctx context.Context, b *Bus, topic string, events []*Event) error {
	p, _ := ctx.Value(publishCallKey{b}).(publishCall)
	if p.receipts == nil {
		return b.store(ctx, topic, events, nil, p.when)
	}
	receipts := make([]Receipt, len(events))
	err := b.store(ctx, topic, events, receipts, p.when)
	p.receipts.add(receipts)
	return err
}

// A receiptCollector collects the receipts of the events that one PublishReceipts has stored
// inside the middleware.
type receiptCollector struct {
	mu     sync.Mutex
	stored []Receipt
}

func (c *receiptCollector) add(receipts []Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range receipts {
		if r.Position != "" || r.Duplicate {
			c.stored = append(c.stored, r)
		}
	}
}

// fill sets receipts to the receipts of events. Events with the same ID get theirs in the order
// in which they were stored.
func (c *receiptCollector) fill(receipts []Receipt, events []Event) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := make(map[string][]Receipt, len(c.stored))
	for _, r := range c.stored {
		stored[r.ID] = append(stored[r.ID], r)
	}
	for i, e := range events {
		receipts[i] = Receipt{ID: e.ID, Time: e.Time}
		if rs := stored[e.ID]; len(rs) > 0 && e.ID != "" {
			receipts[i], stored[e.ID] = rs[0], rs[1:]
		}
	}
}
