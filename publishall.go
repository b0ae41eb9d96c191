package eventbus

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

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
