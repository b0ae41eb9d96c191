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

// A Publisher stores events.
type Publisher interface {
	// Publish stores events in topic, in the order given. It returns when all events are
	// stored as durably as the backend can. The error is a *FieldError or a *PublishError,
	// see [Bus.Publish]. The Publish of a Bus neither changes nor retains the events.
	Publish(ctx context.Context, topic string, events ...*Event) error
}

// A PublisherFunc is a function that serves as a [Publisher].
type PublisherFunc func(ctx context.Context, topic string, events ...*Event) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, topic string, events ...*Event) error {
	return f(ctx, topic, events...)
}

// A PublishMiddleware wraps a [Publisher]. The bus passes copies of the program's events to
// it, with ID, Source and Time set; none is nil. A middleware may change these copies, but
// not the bytes of Payload or the fields of Retry, because the program's events share them.
// A middleware passes on its context, or a child of it, because [Bus.PublishReceipts] finds
// its receipts by the context.
type PublishMiddleware func(Publisher) Publisher

// Publish stores events in topic, in the order given, and returns when all are
// stored as durably as the backend can. Concurrent calls share round trips.
//
// Publish checks all events before it stores any. If a field is wrong, the error is a
// *FieldError that names the field. Any other failure is a *PublishError with an entry for
// each event. If ctx ends before an event was sent, the event is certainly not stored. If
// ctx ends later, the event's error matches both ErrUnknownOutcome and ctx.Err().
//
// If the backend cannot be reached, Publish tries again until ctx ends or
// Options.PublishTimeout has passed. It repeats only events that are certainly not stored,
// and with Options.Dedup also events of unknown outcome. It stops if another try could
// change the order of a key.
//
// Publish stores the events of a topic and key in the order of the calls of one goroutine,
// also if an earlier call gave up while its events were on the way. Then a later call of the
// key waits until the earlier write has ended; other calls do not.
//
// A call waits at most 100 ms for a call to the backend in which it has no part and which does
// not return, because a topic, a connection or a shard hangs. A topic that hangs is then
// written apart from others, by at most twice Limits.Publishers writes, until the backend
// answers. This holds while no more than 16 times Limits.Publishers writes hang. Calls that
// were joined to a write before it hung share its outcome. All calls count for MaxPending.
//
// Publish neither changes nor retains the events. An event without ID, Source or Time is
// stored with a new ID, Options.Service and the present time; [Bus.PublishReceipts] returns
// them. So the same *Event may be published again, also by concurrent calls, and is another
// event each time unless it has an ID.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*Event) error {
	if b.publish == nil {
		return b.store(ctx, topic, events, nil, when{})
	}
	return b.publishCopies(ctx, topic, events, nil, when{})
}

// A ReceiptPublisher stores events and returns receipts.
type ReceiptPublisher interface {
	PublishReceipts(ctx context.Context, topic string, events ...*Event) ([]Receipt, error)
}

// A Receipt says how an event was published.
type Receipt struct {
	// ID is the event's ID, a new one if the program gave none. A program that publishes the
	// event again after a failure sets this ID, so that Options.Dedup recognizes the event.
	ID string

	Position  string    // where the event is stored, see Event.Position; empty if it is not, or may not be
	Time      time.Time // the Time of the event; the present time if the program gave none
	Duplicate bool      // the topic had an event of this ID already, see Options.Dedup; Position may be empty
}

// PublishReceipts is like Publish, and returns a receipt for each event, in their order.
// With a *PublishError, the receipt of an event that was not stored has only ID and Time.
// With any other error the receipts may be zero.
//
// A receipt shows the event as the PublishMiddleware has changed it. If a middleware
// publishes another event in its place, or publishes later, the receipt has no Position. The
// same applies if a middleware does not pass on its context.
func (b *Bus) PublishReceipts(ctx context.Context, topic string, events ...*Event) ([]Receipt, error) {
	receipts := make([]Receipt, len(events))
	if b.publish == nil {
		return receipts, b.store(ctx, topic, events, receipts, when{})
	}
	return receipts, b.publishCopies(ctx, topic, events, receipts, when{})
}

// An Addressed is an event and the topic in which it is to be published.
type Addressed struct {
	Topic string
	Event *Event
}

// A Result says how one of the events of [PublishAll] was published.
type Result struct {
	Receipt       // with an error it has only ID and Time, or nothing
	Err     error // nil if the event is stored; a *FieldError if it is refused
}

// PublishAll publishes events of any topics, and returns their results in the same order. An
// event that p would refuse fails alone, and the others are published. Events of one topic
// keep their order, as in one call of p.PublishReceipts for each topic. The calls for several
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

// publishSome publishes the events of one topic and sets their results. If p refuses one of
// them, it publishes the others without it.
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

// WhenFull says how Publish behaves when Options.MaxPending or Options.MaxPendingBytes is
// reached.
type WhenFull uint8

const (
	// WaitWhenFull makes Publish wait until there is room. Calls get room in the order in
	// which they began.
	WaitWhenFull WhenFull = iota

	// RejectWhenFull makes Publish return ErrBackpressure immediately.
	RejectWhenFull

	// DropNewest drops the events of the new call: Publish returns ErrDropped immediately.
	DropNewest

	// DropOldest drops the events of the calls that have waited longest: these calls return
	// ErrDropped. Only events that are certainly not stored are dropped. If that does not
	// make enough room, the events of the new call are dropped. A dropped event leaves no
	// dead letter. Bus.Dropped counts it, and Observer.Dropped reports it.
	DropOldest
)

var whenFull = map[WhenFull]publish.WhenFull{
	WaitWhenFull: publish.Wait, RejectWhenFull: publish.Reject, DropNewest: publish.DropNewest, DropOldest: publish.DropOldest,
}

// store does the work of Publish, without the middleware. If receipts is not nil, it has one
// element for each event, which store sets.
func (b *Bus) store(ctx context.Context, topic string, events []*Event, receipts []Receipt, w when) error {
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
	if err == nil { // after an error a write to the broker may still read the messages of s
		s.recycle()
		return nil
	}
	errs := make([]error, len(events))
	for i := range errs {
		errs[i] = backend.ErrorAt(err, i)
	}
	return &PublishError{Topic: topic, Errors: errs}
}

// check returns an error that says why Publish refuses to publish events to topic, or nil.
func (s *encoder) check(b *Bus, topic string, events []*Event, w when) error {
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
			return &FieldError{Field: fmt.Sprintf("events[%d].Once", i), Reason: "is set, but the backend does not remember it"}
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
		return &FieldError{Field: "topic", Reason: topic + " is a name that the bus uses for the partitions of a topic"}
	}
	return nil
}

// wrapPublisher returns p, wrapped by o.PublishMiddleware. A middleware that returns nil is
// an error.
func (o Options) wrapPublisher(p Publisher) (Publisher, error) {
	for i, m := range slices.Backward(o.PublishMiddleware) {
		if p = m(p); p == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.PublishMiddleware[%d]", i), Reason: "has returned nil"}
		}
	}
	return p, nil
}

// publishCopies passes copies of events to the middleware, with ID, Source and Time set. If
// receipts is not nil, publishCopies sets its elements.
func (b *Bus) publishCopies(ctx context.Context, topic string, events []*Event, receipts []Receipt, w when) error {
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
	p := passage{when: w} // it hides the passage of a call whose middleware makes this call
	if receipts != nil {
		p.tally = &tally{}
	}
	err := b.publish.Publish(context.WithValue(ctx, passageOf{b}, p), topic, pointers...)
	p.tally.fill(receipts, copies)
	return err
}

// A passage goes through the middleware in the context of one call, because Publish takes only
// events and returns only an error.
type passage struct {
	tally *tally // nil: the call returns no receipts
	when  when
}

type passageOf struct{ bus *Bus }

// storeCopies is the Publish that the middleware wraps.
func storeCopies(ctx context.Context, b *Bus, topic string, events []*Event) error {
	p, _ := ctx.Value(passageOf{b}).(passage)
	if p.tally == nil {
		return b.store(ctx, topic, events, nil, p.when)
	}
	receipts := make([]Receipt, len(events))
	err := b.store(ctx, topic, events, receipts, p.when)
	p.tally.add(receipts)
	return err
}

// A tally collects the receipts of the events that the middleware of one PublishReceipts has
// stored.
type tally struct {
	mu     sync.Mutex
	stored []Receipt
}

func (t *tally) add(receipts []Receipt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range receipts {
		if r.Position != "" || r.Duplicate {
			t.stored = append(t.stored, r)
		}
	}
}

// fill sets receipts to the receipts of events. Events of the same ID get theirs in the order
// in which they were stored.
func (t *tally) fill(receipts []Receipt, events []Event) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stored := make(map[string][]Receipt, len(t.stored))
	for _, r := range t.stored {
		stored[r.ID] = append(stored[r.ID], r)
	}
	for i, e := range events {
		receipts[i] = Receipt{ID: e.ID, Time: e.Time}
		if rs := stored[e.ID]; len(rs) > 0 && e.ID != "" {
			receipts[i], stored[e.ID] = rs[0], rs[1:]
		}
	}
}
