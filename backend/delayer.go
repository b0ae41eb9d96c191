package backend

import "context"

// A Delayer is a [Source] that can give deliveries back before their lease ends. Without a
// Delayer the bus holds a failed event, and extends its lease, until the retry is due.
type Delayer interface {
	// Delay gives each delivery back: its message is due again for every member after
	// [Delayed].For, which may have any length up to [Limits].Delay. A delay is as durable
	// as a published message. By the broker's clock, no message is due before its delay is
	// over.
	//
	// Delay is fenced: if the caller is no longer the holder, nothing changes and the error
	// of the item matches [ErrLeaseLost]. The caller is no longer the holder after Ack or
	// Delay of the delivery, or after the message was redelivered. Delay may also return
	// ErrLeaseLost if the lease has expired and the message was not redelivered yet. If the
	// outcome of an item is unknown, the bus repeats the item only within its lease.
	Delay(ctx context.Context, ds []Delayed) error
}
