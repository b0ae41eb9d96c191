package engine

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/internal/wait"
)

// An attachment is a backend.Source with its optional interfaces. If the broker loses the group,
// the subscription attaches again, which creates a new attachment. If the driver panics, the call
// returns the panic as an error.
type attachment struct {
	consumer *consumer
	source   backend.Source
	delayer  backend.Delayer  // nil if the source cannot Delay
	extender backend.Extender // nil if the source cannot Extend
	recovery *wait.Recovery   // learns of the calls that succeed
	holds    *ledger.Source   // its Holds in the ledger, under the lock of the subscription's ledger
}

func (a *attachment) receive(ctx context.Context, n int, bytes int64) (ds []backend.Delivery, err error) {
	if c := a.consumer.claim; c != nil && !c.Leases() {
		return nil, errNotOwned
	}
	err = a.call("Receive", func() (err error) { ds, err = a.source.Receive(ctx, n, bytes); return err })
	return ds, err
}

func (a *attachment) ack(ctx context.Context, ds []*backend.Delivery) error {
	if c := a.consumer.claim; c != nil && !c.Settles() {
		return errNotOwned
	}
	return a.call("Ack", func() error { return a.source.Ack(ctx, ds) })
}

func (a *attachment) delay(ctx context.Context, ds []backend.Delayed) error {
	if a.delayer == nil {
		return errors.ErrUnsupported
	}
	if c := a.consumer.claim; c != nil && !c.Settles() {
		return errNotOwned
	}
	return a.call("Delay", func() error { return a.delayer.Delay(ctx, ds) })
}

func (a *attachment) extend(ctx context.Context, ds []*backend.Delivery) error {
	if c := a.consumer.claim; c != nil {
		if !c.Leases() {
			return errNotOwned
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.Until())
		defer cancel()
	}
	return a.call("Extend", func() error { return a.extender.Extend(ctx, ds) })
}

func (a *attachment) close() error {
	return callDriver("Close of a Source", a.source.Close)
}

// call is like callDriver, but if f succeeds it also ends the waits that follow failed calls.
func (a *attachment) call(method string, f func() error) error {
	err := callDriver(method, f)
	if err == nil {
		a.recovery.Succeeded()
	}
	return err
}
