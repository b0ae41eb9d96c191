package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus"
)

// numberHeader is the header with the number of an event in the input; the first is 1. An
// [Account] identifies events by this number.
const numberHeader = "demo-number"

// runHeader is the header with the ID of the run to which an event belongs.
const runHeader = "demo-run"

// A group is a consumer of the demo.
type group struct {
	name    string
	options eventbus.SubscribeOptions
	trouble trouble
	handler eventbus.Handler // called if trouble has no error for the attempt; nil: the attempt succeeds
}

// An order is the payload that billing and shipping decode.
type order struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

const maxAttempts = 4

// quick has retry delays short enough for a demo.
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

// trouble says how many of 1,000 events fail in a group, by kind of failure. Whether an event fails depends only on its
// number, so every run of the demo has the same failures.
type trouble struct {
	salt    uint64
	once    uint64 // the first attempt fails
	twice   uint64 // the first two attempts fail
	always  uint64 // every attempt fails
	refused uint64 // the first attempt fails for good
}

var (
	errTransient = errors.New("the service is busy")
	errRefused   = errors.New("the card is refused")
)

// of returns the error that the given run of an event is to have, or nil.
func (t trouble) of(number, run int) error {
	// The finalizer of splitmix64 spreads consecutive numbers.
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

// watched returns a handler that fails as g.trouble says, calls g.handler, and reports each run to the account as a run of
// group i.
func (d *Demo) watched(i int, g group) eventbus.Handler {
	return func(ctx context.Context, del *eventbus.Delivery) (err error) {
		if d.foreign(del) {
			return nil
		}
		number := numberOf(del)
		run := d.account.Begin(i, number, del.Key)
		over := run >= maxAttempts || del.Attempt >= maxAttempts // the broker may have counted more attempts
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
		over = true // a payload that cannot be decoded fails for good
		return g.handler(ctx, del)
	}
}

// foreign reports whether an event belongs to another run of the demo.
func (d *Demo) foreign(del *eventbus.Delivery) bool {
	run := del.Headers.Get(runHeader)
	return run != "" && run != d.run
}

// numberOf returns the number of an event, or 0 if it has none.
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
