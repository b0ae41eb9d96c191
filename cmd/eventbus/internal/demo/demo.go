// Package demo runs a small shop on a bus and checks the outcome of each of its events.
package demo

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// A Demo publishes the events of an input to three groups, each with its own kinds of
// failures. It runs once.
type Demo struct {
	bus     *eventbus.Bus
	topic   string
	run     string // the value of runHeader in the events of this run
	input   *Input
	stall   time.Duration
	groups  []group
	account *Account
	window  window
}

// stallAfter is how long the demo waits for the next finished event before it gives up. It is longer than a lease, because
// events of a lost member are redelivered only when their leases expire.
const stallAfter = 45 * time.Second

// New returns a demo on a bus, which Run shuts down. Events go to topic. Dead letters go to
// the topic whose name is topic with ".dlq" appended.
func New(bus *eventbus.Bus, topic string, input *Input) *Demo {
	d := &Demo{bus: bus, topic: topic, run: uuid.NewString(), input: input, stall: stallAfter, groups: groups()}
	var names []string
	for _, g := range d.groups {
		names = append(names, g.name)
	}
	d.account = NewAccount(names...)
	return d
}

// Topics returns the names of the demo's topics.
func (d *Demo) Topics() []string { return []string{d.topic, d.topic + deadSuffix} }

const deadSuffix = ".dlq"

// SetLease sets the lease of all groups, instead of the bus's default.
func (d *Demo) SetLease(lease time.Duration) {
	for i := range d.groups {
		d.groups[i].options.Lease = lease
	}
}

// Account returns the [Account] of the demo. Its counts change until the demo ends.
func (d *Demo) Account() *Account { return d.account }

// errFinished is the cause with which Run ends when every event is finished.
var errFinished = errors.New("finished")

// Run publishes the input and shuts the bus down. It returns when every event is handled or
// dead-lettered, when no event was finished for stallAfter, or when ctx ends.
func (d *Demo) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	fed := make(chan struct{})
	if err := d.subscribe(ctx); err != nil {
		stop(err)
	}
	go func() {
		defer close(fed)
		err := d.feed(ctx)
		if err == nil {
			err = d.account.Wait(ctx, 0, d.stall)
		}
		if err == nil {
			err = errFinished
		}
		stop(err)
	}()
	err := d.bus.Run(ctx)
	stop(err) // ends feed too, if the bus ended before it
	<-fed
	if cause := context.Cause(ctx); !errors.Is(cause, errFinished) && !errors.Is(cause, ErrStalled) {
		err = errors.Join(cause, err)
	}
	return err
}

func (d *Demo) subscribe(ctx context.Context) error {
	for i, g := range d.groups {
		g.options.Group = g.name
		if _, err := d.bus.Subscribe(ctx, d.topic, g.options, d.watched(i, g)); err != nil {
			return err
		}
	}
	_, err := d.bus.Subscribe(ctx, d.topic+deadSuffix, eventbus.SubscribeOptions{
		Group: "account", DeadLetter: eventbus.DiscardDeadLetters,
	}, d.buried)
	return err
}

// A batch holds the events of one Publish call, and their lines in the input.
type batch struct {
	events []*eventbus.Event
	lines  []int
	bytes  int
}

const (
	batchEvents = 256
	batchBytes  = 1 << 20
)

// feed publishes the input, never further ahead of the slowest group than [window] allows.
func (d *Demo) feed(ctx context.Context) error {
	for {
		b, err := d.read(ctx)
		if errors.Is(err, io.EOF) {
			return d.publish(ctx, b)
		}
		if err == nil {
			err = d.publish(ctx, b)
		}
		if err != nil {
			return err
		}
	}
}

// read returns the next batch of the input. With the last batch the error is io.EOF.
func (d *Demo) read(ctx context.Context) (b batch, err error) {
	for len(b.events) < batchEvents && b.bytes < batchBytes {
		if ctx.Err() != nil {
			return b, context.Cause(ctx)
		}
		e, line, err := d.input.Next()
		if err != nil {
			return b, err
		}
		size := len(e.Payload) + e.Headers.Size()
		d.window.saw(size)
		b.events = append(b.events, e)
		b.lines = append(b.lines, line)
		b.bytes += size
	}
	return b, nil
}

func (d *Demo) publish(ctx context.Context, b batch) error {
	if len(b.events) == 0 {
		return nil
	}
	if err := d.account.Wait(ctx, d.window.events(), d.stall); err != nil {
		return err
	}
	first := d.account.Publish(len(b.events))
	for i, e := range b.events {
		e.TTL, e.Retry = 0, nil // an event that expires or is discarded would count as lost
		e.Headers.Set(numberHeader, strconv.Itoa(first+i))
		e.Headers.Set(runHeader, d.run)
	}
	err := d.bus.Publish(ctx, d.topic, b.events...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.locate(b, err)
}

// locate adds the line of the first refused event to err, an error of Publish for b.
func (d *Demo) locate(b batch, err error) error {
	if err == nil {
		return nil
	}
	if i, why := ndjson.Refused(err); i >= 0 && i < len(b.lines) {
		return d.input.At(b.lines[i], why)
	}
	return err
}

// A window limits how far the publisher may be ahead of the slowest group. It allows fewer events if they are large, to
// limit their bytes too. largest is the size of the largest event so far.
type window struct{ largest int }

const (
	windowEvents = 2 << 10
	windowBytes  = 32 << 20
)

func (w *window) saw(size int) { w.largest = max(w.largest, size) }

func (w *window) events() int { return min(windowEvents, windowBytes/max(w.largest, 1)) }
