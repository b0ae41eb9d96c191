// Package limiter decides how many messages a subscription may read from its backend. The
// bus asks a [Limiter] before it reads. So messages beyond the limit wait in the backend,
// and no message is lost.
//
//   - [MaxInFlight], [MaxBytes] and [Both] bound the messages held, which are in flight.
//   - [Adaptive] adjusts that number to the times and failures of handlers.
//   - [Breaker] stops the reads for a while after many handlers have failed.
//   - Package limiter/rate bounds the messages that are read per second.
//
// [All] joins several limiters. SubscribeOptions.MaxInFlight and MaxBytes apply in addition
// to SubscribeOptions.Limiter. Subscriptions with the same Limiter share it, for example
// one rate for all calls to one service.
package limiter

import (
	"context"
	"time"
)

// A Limiter grants places. A place is the permission to read and hold one message. The bus
// asks for a place before it reads a message, and gives the place back when the message is
// settled. A Limiter must be safe for concurrent use. Subscriptions with the same Limiter
// share its places. A limiter may wait before it grants the place of a settled message
// again, as package rate does. A place that is given back unused must be free immediately.
//
// A read keeps its places while it waits for messages, for a third of
// SubscribeOptions.Lease at most. So messages may still come for that time after a limiter
// has stopped granting places. A message that was given back to the backend until its
// retry has no place. It needs a new place when it is read again. A message that the member
// itself holds until the retry keeps its place.
type Limiter interface {
	// Acquire waits until a place is free. It grants at least one place and at most max,
	// and returns how many it has granted. If ctx is done, Acquire does not wait: it grants
	// the free places, or fails with context.Cause(ctx) if there are none. A limiter that
	// grants nothing for a while may fail immediately with a *WaitError, also if ctx is
	// done. The subscription then has the state observer.Limited, and asks again at
	// WaitError.Until, but not sooner than 5 ms later.
	Acquire(ctx context.Context, max int) (int, error)

	// Fill tells the limiter that n granted places now hold messages with a total size of
	// bytes. The bus calls it after a read.
	Fill(n int, bytes int64)

	// Release gives places back. The bus never gives back more places than were granted.
	Release(Released)
}

// Released says which places are given back, and how runs have ended since the last call of
// Release. A run is one call of a handler. [Adaptive] and [Breaker] use the results of
// runs. A message may be settled without a run.
type Released struct {
	Unused int // places that were granted, but got no message

	Settled int   // places whose message was settled
	Bytes   int64 // the total size of the settled messages, as given to Fill

	Runs   int           // runs that have ended
	Failed int           // how many of Runs returned an error or panicked
	Took   time.Duration // total time of Runs; with SubscribeManual a run lasts until settlement
}

// A WaitError says that a limiter grants nothing before the time Until, and why.
type WaitError struct {
	Until  time.Time
	Reason string
}

func (e *WaitError) Error() string { return "limiter: " + e.Reason }

// MaxInFlight returns a limiter of n places. It panics if n is not positive.
func MaxInFlight(n int) Limiter {
	if n < 1 {
		panic("limiter: MaxInFlight needs a positive number")
	}
	return newPool(n, 0)
}

// MaxBytes returns a limiter that grants places while the held messages have less than n
// bytes. Sizes are known only after a read, so one read may exceed n. MaxBytes estimates
// the size of a message by the largest average of one read so far, and grants as many
// places as fit. For the first read it grants one. MaxBytes panics if n is not positive.
func MaxBytes(n int64) Limiter {
	if n < 1 {
		panic("limiter: MaxBytes needs a positive number")
	}
	return newPool(0, n)
}

// Both returns a limiter that bounds the number of messages and their total size in bytes.
// If bytes is zero or less, the size has no bound. Both panics if messages is not positive.
func Both(messages int, bytes int64) Limiter {
	if messages < 1 {
		panic("limiter: Both needs a positive number of messages")
	}
	return newPool(messages, max(bytes, 0))
}
