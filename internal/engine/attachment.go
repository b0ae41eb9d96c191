package engine

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/outage"
	"github.com/seed41896749/eventbus/observer"
)

// An attachment is a backend.Source with its optional interfaces. If the broker loses the
// group, the subscription attaches again and so gets a new attachment. A panic of the driver
// becomes an error of the call.
type attachment struct {
	feed     *feed
	source   backend.Source
	delayer  backend.Delayer  // nil if the source cannot Delay
	extender backend.Extender // nil if the source cannot Extend
	outage   *outage.Outage   // is told of calls that succeed
	book     *ledger.Source   // its part of the ledger; the book of the subscription has the lock
}

func (a *attachment) receive(ctx context.Context, n int, bytes int64) (ds []backend.Delivery, err error) {
	if c := a.feed.claim; c != nil && !c.Leases() {
		return nil, errNotOwned
	}
	err = a.drive("Receive", func() (err error) { ds, err = a.source.Receive(ctx, n, bytes); return err })
	return ds, err
}

func (a *attachment) ack(ctx context.Context, ds []*backend.Delivery) error {
	if c := a.feed.claim; c != nil && !c.Settles() {
		return errNotOwned
	}
	return a.drive("Ack", func() error { return a.source.Ack(ctx, ds) })
}

func (a *attachment) delay(ctx context.Context, ds []backend.Delayed) error {
	if a.delayer == nil {
		return errors.ErrUnsupported
	}
	if c := a.feed.claim; c != nil && !c.Settles() {
		return errNotOwned
	}
	return a.drive("Delay", func() error { return a.delayer.Delay(ctx, ds) })
}

func (a *attachment) extend(ctx context.Context, ds []*backend.Delivery) error {
	if c := a.feed.claim; c != nil {
		if !c.Leases() {
			return errNotOwned
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Until())
		defer cancel()
	}
	return a.drive("Extend", func() error { return a.extender.Extend(ctx, ds) })
}

func (a *attachment) close() error {
	return driving("Close of a Source", a.source.Close)
}

// drive is driving, and ends the waits after failed calls if f succeeds.
func (a *attachment) drive(method string, f func() error) error {
	err := driving(method, f)
	if err == nil {
		a.outage.Succeeded()
	}
	return err
}

// driving calls f, which calls a method of the driver, and returns its error. If f panics, the
// error is a PanicError that names the method.
func driving(method string, f func() error) error {
	err := guarded(f)
	if p, ok := err.(*observer.PanicError); ok { //nolint:errorlint // the one of guarded, never wrapped
		p.Where = "driver's " + method
	}
	return err
}

// guarded calls f and returns its error, or a PanicError if f panics.
func guarded(f func() error) (err error) {
	defer recovered(&err)
	return f()
}
