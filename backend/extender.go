package backend

import "context"

// An Extender is a [Source] that can restart a lease. Without it a handler must finish
// within one lease, and the bus reads no events before a handler is free. Events that wait
// for the retry of an earlier event of their key are then redelivered in no order.
type Extender interface {
	// Extend makes each delivery due one lease from now. It is fenced as [Delayer].Delay
	// is. It does not count as an attempt. Extend must not change the deliveries, because a
	// concurrent Ack may read them.
	Extend(ctx context.Context, ds []*Delivery) error
}
