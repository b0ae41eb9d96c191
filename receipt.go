package eventbus

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Receipt says how an event was published.
type Receipt struct {
	// ID is the event's ID, a new one if the program gave none. A program that publishes the
	// event again after a failure sets this ID, so that Options.Dedup recognizes the event.
	ID string

	Position  string    // where the event is stored, see Event.Position; empty if it is not, or may not be
	Time      time.Time // the Time of the event; the present time if the program gave none
	Duplicate bool      // the topic had an event of this ID already, see Options.Dedup; Position may be empty
}

// A ReceiptPublisher stores events and returns receipts.
type ReceiptPublisher interface {
	PublishReceipts(ctx context.Context, topic string, events ...*Event) ([]Receipt, error)
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
