// Package demo runs a small shop on a bus and keeps an account of what becomes
// of its events.
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

// A Demo publishes the events of an input to three groups with troubles of
// their own. It runs once.
type Demo struct {
	bus     *eventbus.Bus
	topic   string
	run     string // what tells its events from those of other runs
	input   *Input
	stall   time.Duration
	groups  []group
	account *Account
	window  window
}

// stallAfter is how long nothing may be finished while something is open: longer
// than the lease, after which what a member has dropped comes again.
const stallAfter = 45 * time.Second

// New returns a demo on a bus, which Run shuts down. It publishes to topic; dead
// letters go to the topic with ".dlq".
func New(bus *eventbus.Bus, topic string, input *Input) *Demo {
	d := &Demo{bus: bus, topic: topic, run: uuid.NewString(), input: input, stall: stallAfter, groups: groups()}
	var names []string
	for _, g := range d.groups {
		names = append(names, g.name)
	}
	d.account = NewAccount(names...)
	return d
}

// Topics are those it uses.
func (d *Demo) Topics() []string { return []string{d.topic, d.topic + deadSuffix} }

const deadSuffix = ".dlq"

// SetLease sets the lease of all groups, in place of the bus' default.
func (d *Demo) SetLease(lease time.Duration) {
	for i := range d.groups {
		d.groups[i].options.Lease = lease
	}
}

// Account is kept while the demo runs.
func (d *Demo) Account() *Account { return d.account }

// errFinished ends the run: everything is accounted for.
var errFinished = errors.New("finished")

// Run publishes the input and returns when everything is handled or dead-lettered,
// nothing moves any more, or ctx ends, with the bus shut down.
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
	stop(err) // if the bus has ended by itself
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

// A batch is what is published with one call, and the line of each event.
type batch struct {
	events []*eventbus.Event
	lines  []int
	bytes  int
}

const (
	batchEvents = 256
	batchBytes  = 1 << 20
)

// feed publishes the input, never far ahead of the slowest group.
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

// read returns the next batch; the last comes with io.EOF.
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
		e.Headers.Set(numberHeader, strconv.Itoa(first+i))
		e.Headers.Set(runHeader, d.run)
	}
	err := d.bus.Publish(ctx, d.topic, b.events...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.locate(b, err)
}

// locate says in which line the first event is that could not be published.
func (d *Demo) locate(b batch, err error) error {
	if err == nil {
		return nil
	}
	if i, why := ndjson.Refused(err); i >= 0 && i < len(b.lines) {
		return d.input.At(b.lines[i], why)
	}
	return err
}

// A window bounds how far the publisher is ahead of the slowest group: by events,
// and, by the largest seen so far, by bytes.
type window struct{ largest int }

const (
	windowEvents = 2 << 10
	windowBytes  = 32 << 20
)

func (w *window) saw(size int) { w.largest = max(w.largest, size) }

func (w *window) events() int { return min(windowEvents, windowBytes/max(w.largest, 1)) }
