package backend

import "context"

// An Extender is a [Source] that can restart a lease. Without it a handler must finish
// within one lease, and the bus prefetches nothing. The events behind a retry of their
// key are then redelivered when their leases expire, in no order.
type Extender interface {
	// Extend makes each delivery due one lease from now. It is fenced as [Delayer].Delay
	// is. It does not count as an attempt. The deliveries are lent as to [Source].Ack.
	Extend(ctx context.Context, ds []*Delivery) error
}
