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
// asks for places before each read, tells how many of them the read has filled, and gives a
// place back when its message is settled. A Limiter must be safe for concurrent use.
// Subscriptions with the same Limiter share its places. A limiter may wait before it grants
// the place of a settled message again, as package rate does. A place that a read has not
// filled must be free immediately.
//
// A read keeps its grant while it waits for messages, for a third of
// SubscribeOptions.Lease at most. So messages may still come for that time after a limiter
// has stopped granting places. A message that was given back to the backend until its
// retry has no place. It needs a new place when it is read again. A message that the member
// itself holds until the retry keeps its place.
type Limiter interface {
	// Acquire waits until a place is free. It grants at least one place and at most max. If
	// ctx is done, Acquire does not wait: it grants the free places, or fails with
	// context.Cause(ctx) if there are none. Without places the Grant is zero. A limiter that
	// grants nothing for a while may fail immediately with a *WaitError, also if ctx is
	// done. The subscription then has the state observer.Limited, and asks again at
	// WaitError.Until, but not sooner than 5 ms later.
	Acquire(ctx context.Context, max int) (Grant, error)

	// Fill ends a grant after its read. Of the places of g, n now hold messages with a total
	// size of bytes; the others are free again, and so are the bytes of g that the messages
	// do not use. Fill is called once for each grant, with n = 0 after a read without messages.
	// A limiter such as [All] may end a grant in several parts, which add up to the grant. A
	// limiter that granted no bound in bytes ignores g.Bytes.
	Fill(g Grant, n int, bytes int64)

	// Release gives the places of settled messages back. The bus never gives back more
	// places than were filled.
	Release(Released)
}

// A Grant is the permission for one read.
type Grant struct {
	// Messages is the number of granted places: the most messages of the read.
	Messages int

	// Bytes is the most bytes of the read, by the Size of its messages. The read may exceed
	// Bytes only with one message that is larger alone. 0 means no bound.
	Bytes int64
}

// Released says which places are given back, and how runs have ended since the last call of
// Release. A run is one call of a handler. [Adaptive] and [Breaker] use the results of
// runs. A message may be settled without a run.
type Released struct {
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
// bytes in total. The held messages exceed n by one message at most. A read gets at most an
// eighth of n, so that up to eight subscriptions with the same limiter may wait for messages
// at the same time. While other reads wait, a read for one message gets a 4,096th of n, or the
// size of a large message, because a subscription with many topics has many such reads. They need an n of eight times the largest message. With larger messages
// reads wait for each other, and the first large messages of each subscription may together
// exceed n by more. MaxBytes panics if n is not positive.
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
