package backend

import "context"

// A Delayer is a [Source] that can give deliveries back before their lease ends. Without
// it the bus keeps the delivery of a retry, and its lease, until the retry is due.
type Delayer interface {
	// Delay makes each delivery due after its For, for the whole group. For may have any
	// length up to [Limits].Delay. A delay is as durable as a published message. By the
	// broker's clock no delivery is due earlier than asked.
	//
	// Delay is fenced: if the caller is no longer the holder, nothing changes and the
	// error of the item matches [ErrLeaseLost]. The caller is no longer the holder if
	// the lease expired and another member took the delivery, or if it was settled.
	// Delay may return ErrLeaseLost too if the lease has expired and nobody has taken
	// the delivery yet. The bus does not repeat an item of unknown outcome after its
	// lease.
	Delay(ctx context.Context, ds []Delayed) error
}
