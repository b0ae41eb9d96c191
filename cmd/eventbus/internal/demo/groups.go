package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus"
)

// numberHeader has the number of an event in its input, from 1 on: by it the
// account knows it again.
const numberHeader = "demo-number"

// runHeader says which run an event is of.
const runHeader = "demo-run"

// A group is a consumer of the demo.
type group struct {
	name    string
	options eventbus.SubscribeOptions
	trouble trouble
	handler eventbus.Handler // what it does when there is no trouble; nil: nothing
}

// An order is what billing and shipping want to read in an event.
type order struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

const maxAttempts = 4

// quick makes the waits between attempts short enough for a demo.
var quick = eventbus.Retry{MaxAttempts: maxAttempts, Initial: 2 * time.Millisecond, Max: 20 * time.Millisecond}

// groups are the consumers. All keep the order of a customer's events.
func groups() []group {
	orders := eventbus.Topic[order]{Name: "the demo"}
	read := orders.Handler(func(context.Context, order, *eventbus.Delivery) error { return nil })
	return []group{
		{
			name:    "billing",
			options: eventbus.SubscribeOptions{Concurrency: 8, Retry: quick},
			trouble: trouble{salt: 1, once: 100, twice: 25, refused: 4},
			handler: read,
		},
		{
			name:    "shipping",
			options: eventbus.SubscribeOptions{Concurrency: 16, Retry: quick, Order: eventbus.OrderByKey},
			trouble: trouble{salt: 2, once: 80, twice: 40, always: 4},
			handler: read,
		},
		{
			name:    "audit",
			options: eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive},
		},
	}
}

// trouble says which events a group has trouble with, out of 1,000 each: by the
// number of the event alone, so that each run of the demo has the same.
type trouble struct {
	salt    uint64
	once    uint64 // the first attempt fails
	twice   uint64 // the first two fail
	always  uint64 // every attempt fails
	refused uint64 // the first fails for good
}

var (
	errTransient = errors.New("the service is busy")
	errRefused   = errors.New("the card is refused")
)

// of returns what happens in this run of the event.
func (t trouble) of(number, run int) error {
	// The finalizer of splitmix64: neighbours have nothing in common.
	x := uint64(number) + t.salt*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	share := (x ^ x>>31) % 1000
	for _, kind := range []struct {
		of   uint64
		runs int
		err  error
	}{
		{t.once, 1, errTransient},
		{t.twice, 2, errTransient},
		{t.always, maxAttempts, errTransient},
		{t.refused, maxAttempts, eventbus.Permanent(errRefused)},
	} {
		if share < kind.of {
			if run <= kind.runs {
				return kind.err
			}
			return nil
		}
		share -= kind.of
	}
	return nil
}

// watched is the handler of group i as the account sees it.
func (d *Demo) watched(i int, g group) eventbus.Handler {
	return func(ctx context.Context, del *eventbus.Delivery) (err error) {
		if d.foreign(del) {
			return nil
		}
		number := numberOf(del)
		run := d.account.Begin(i, number, del.Key)
		over := run >= maxAttempts || del.Attempt >= maxAttempts // a broker may have counted more
		defer func() {
			outcome := Done
			switch {
			case err != nil && over:
				outcome = Over
			case err != nil:
				outcome = Again
			}
			d.account.End(i, number, del.Key, outcome)
		}()
		if err := g.trouble.of(number, run); err != nil {
			over = over || errors.Is(err, errRefused)
			return err
		}
		if g.handler == nil {
			return nil
		}
		over = true // what cannot be decoded now never can
		return g.handler(ctx, del)
	}
}

// foreign reports whether an event is known to be of another run.
func (d *Demo) foreign(del *eventbus.Delivery) bool {
	run := del.Headers.Get(runHeader)
	return run != "" && run != d.run
}

// numberOf returns the number of an event, or 0 if it is none of ours.
func numberOf(d *eventbus.Delivery) int {
	n, err := strconv.Atoi(d.Headers.Get(numberHeader))
	if err != nil {
		return 0
	}
	return n
}

// buried is the handler of the dead letters.
func (d *Demo) buried(_ context.Context, del *eventbus.Delivery) error {
	if d.foreign(del) {
		return nil
	}
	letter, _ := eventbus.DeadLetterOf(&del.Event)
	for i, g := range d.groups {
		if g.name == letter.Group {
			d.account.Bury(i, numberOf(del))
			return nil
		}
	}
	return fmt.Errorf("a dead letter of group %q, which is none of the demo's", letter.Group)
}
