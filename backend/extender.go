package backend

import "context"

// An Extender is a [Source] that can restart a lease. Without it, three limits apply. A
// handler must finish within one lease. The bus reads no events before a handler is free.
// Events that wait for the retry of an earlier event of their key are redelivered in any
// order.
type Extender interface {
	// Extend restarts the lease of each delivery, which is then due one lease from now.
	// Extend is fenced as [Delayer].Delay is, and does not count as an attempt. It must not
	// change the deliveries, because a concurrent Ack may read them.
	Extend(ctx context.Context, ds []*Delivery) error
}
