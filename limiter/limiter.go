// Package limiter decides how many messages a subscription may read from its backend. The
// bus asks a [Limiter] before it reads. So messages beyond the limit wait in the backend,
// and no message is lost.
//
//   - [MaxInFlight], [MaxBytes] and [Both] bound the messages that are held.
//   - [Adaptive] sets the number of held messages by the time and the failures of handlers.
//   - [Breaker] lets a subscription read nothing for a while after many handlers have failed.
//   - Package limiter/rate bounds the messages per second.
//
// [All] joins several limiters. SubscribeOptions.MaxInFlight and MaxBytes apply in addition
// to SubscribeOptions.Limiter. Subscriptions that are given the same Limiter share it, for
// example one rate for all calls to one service.
package limiter

import (
	"context"
	"time"
)

// A Limiter grants places. A place is the permission to read and hold one message. The bus
// asks for a place before it reads a message, and gives the place back when the message is
// settled. A Limiter is safe for concurrent use. Subscriptions that are given the same
// Limiter share its places. A limiter may wait before it grants the place of a settled
// message again, as package rate does. It must grant an unused place again immediately.
//
// A read of an empty topic keeps its places while it waits, for a third of
// SubscribeOptions.Lease at most. A message that waits in the backend for its retry has no
// place. It needs a new place when it is read again.
type Limiter interface {
	// Acquire waits until there is a place. It grants at least one place and at most max.
	// When ctx is done it waits no longer: it grants the places that are free, and if there
	// are none it fails with context.Cause(ctx). A limiter that grants nothing for a while
	// may fail immediately with a *WaitError. The subscription then has the state Limited,
	// and asks again at WaitError.Until.
	Acquire(ctx context.Context, max int) (int, error)

	// Fill tells the limiter that n granted places now hold messages, whose total size is
	// bytes. The bus calls it after a read.
	Fill(n int, bytes int64)

	// Release gives places back. The bus never gives back more places than were granted.
	Release(Released)
}

// Released says which places are given back, and how runs have ended since the last call of
// Release. A run is one call of a handler. Adaptive and Breaker need the runs. A message
// may be settled without a run. A message that is held until its retry keeps its place.
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

// MaxInFlight returns a limiter of n places. n must be positive.
func MaxInFlight(n int) Limiter {
	if n < 1 {
		panic("limiter: MaxInFlight needs a positive number")
	}
	return newPool(n, 0)
}

// MaxBytes returns a limiter that grants places while the messages held have less than n
// bytes. Sizes are known only after a read, so one read may exceed n. MaxBytes keeps the
// largest average size of the messages of one read. A read asks for as many messages of
// that size as fit in the rest. The first read asks for one message. n must be positive.
func MaxBytes(n int64) Limiter {
	if n < 1 {
		panic("limiter: MaxBytes needs a positive number")
	}
	return newPool(0, n)
}

// Both returns a limiter that bounds the number of messages and their total size. If bytes
// is zero or less, the size has no bound. messages must be positive.
func Both(messages int, bytes int64) Limiter {
	if messages < 1 {
		panic("limiter: Both needs a positive number of messages")
	}
	return newPool(messages, max(bytes, 0))
}
