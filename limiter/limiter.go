// Package limiter decides how many messages a subscription may read from its backend. The bus asks
// a [Limiter] before each read, so messages beyond the limit wait in the backend, and none is lost.
//
//   - [MaxInFlight], [MaxBytes] and [Both] limit the messages held, that is, in flight.
//   - [Adaptive] adjusts that number to how fast and how reliably handlers run.
//   - [Breaker] stops reading for a while after many handlers have failed.
//   - Package limiter/rate limits the messages read per second.
//
// [All] combines several limiters. SubscribeOptions.MaxInFlight and MaxBytes apply in addition to
// SubscribeOptions.Limiter. Subscriptions with the same Limiter share it, which gives you, for
// example, one rate for all calls to a service.
package limiter

import (
	"context"
	"time"
)

// A Limiter grants slots. A slot is the permission to read and hold one message. The bus acquires
// slots before each read, reports how many of them the read has filled, and releases a slot when
// its message is settled. A limiter may delay before it grants a released slot again, as package
// rate does. Implementations must be safe for concurrent use; subscriptions with the same Limiter
// share its slots. A slot that a read did not fill must be free again immediately.
//
// A read keeps its grant while it waits for messages, for at most a third of
// SubscribeOptions.Lease, so messages may keep arriving for that long after a limiter has stopped
// granting slots. A message that waits in the backend for its retry has no slot, and needs a new
// one when it is read again. A message that waits in the member keeps its slot.
type Limiter interface {
	// Acquire waits until a slot is free, and grants at least one and at most max. If ctx is done,
	// Acquire does not wait: it grants the free slots, or fails with context.Cause(ctx) if there
	// are none. With an error the Grant is zero.
	//
	// A limiter that will grant nothing for a while may fail immediately with a *WaitError, even if
	// ctx is done. The subscription then has the state observer.Limited, and asks again at
	// WaitError.Until, but no sooner than 5 ms later.
	Acquire(ctx context.Context, max int) (Grant, error)

	// Fill ends a grant after its read. Of the slots in g, n now hold messages with a total size of
	// bytes. The others are free again, as are the bytes of g that the messages do not use. The bus
	// calls Fill once per grant, with n = 0 if the read brought no messages. A limiter such as
	// [All] may end a grant in several parts, which add up to the grant. A limiter that does not
	// limit bytes ignores g.Bytes.
	Fill(g Grant, n int, bytes int64)

	// Release returns the slots of settled messages. The bus never releases more slots than were
	// filled.
	Release(Released)
}

// A Grant is the permission for one read.
type Grant struct {
	// Messages is the number of granted slots, and so the most messages that the read may bring.
	Messages int

	// Bytes limits the total Size of the messages of the read; 0 means no limit. A read may exceed
	// it only with a single message that is larger by itself.
	Bytes int64
}

// Released says which slots are returned, and how runs have ended since the previous call to
// Release. A run is one call of a handler. [Adaptive] and [Breaker] use the results of runs. A
// message may be settled without a run.
type Released struct {
	Settled int   // slots whose message was settled
	Bytes   int64 // the total size of the settled messages, as given to Fill

	Runs   int           // runs that have ended
	Failed int           // how many of Runs returned an error or panicked
	Took   time.Duration // total duration of Runs; with SubscribeManual a run lasts until settlement
}

// A WaitError means that a limiter grants nothing before the time Until, and says why.
type WaitError struct {
	Until  time.Time
	Reason string
}

func (e *WaitError) Error() string { return "limiter: " + e.Reason }

// MaxInFlight returns a limiter with n slots. It panics if n is not positive.
func MaxInFlight(n int) Limiter {
	if n < 1 {
		panic("limiter: MaxInFlight needs a positive number")
	}
	return newPool(n, 0)
}

// MaxBytes returns a limiter that grants slots while the messages held have fewer than n bytes in
// total. They exceed n by at most one message.
//
// A read gets at most an eighth of n, so that up to eight subscriptions with the same limiter can
// wait for messages at the same time. While other reads wait, a read for a single message gets a
// 4,096th of n, or the size of a large message, because a subscription with many topics has many
// such reads. For this to work, n must be at least eight times your largest message. With larger
// messages, reads wait for each other, and the first large messages of each subscription may
// together exceed n by more.
//
// MaxBytes panics if n is not positive.
func MaxBytes(n int64) Limiter {
	if n < 1 {
		panic("limiter: MaxBytes needs a positive number")
	}
	return newPool(0, n)
}

// Both returns a limiter for both the number of messages and their total size in bytes. If bytes is
// zero or less, the size is not limited. Both panics if messages is not positive.
func Both(messages int, bytes int64) Limiter {
	if messages < 1 {
		panic("limiter: Both needs a positive number of messages")
	}
	return newPool(messages, max(bytes, 0))
}
