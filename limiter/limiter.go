// Package limiter decides how many messages a subscription may take from its backend. It
// is back-pressure: the bus asks a [Limiter] before it reads, so that messages wait in the
// backend, and no message is lost.
//
//   - [MaxInFlight], [MaxBytes] and [Both] bound the messages that are held.
//   - [Adaptive] finds the number of places by the time and the failures of runs.
//   - [Breaker] lets a subscription read nothing for a while after many runs have failed.
//   - Package limiter/rate bounds the messages of a second.
//
// [All] joins them. A subscription has its bounds on held messages besides a Limiter that it
// is given. Subscriptions that are given the same Limiter share it, for example one rate for
// all calls to one service.
package limiter

import (
	"context"
	"time"
)

// A Limiter grants places. The bus asks for a place before it reads a message, and gives
// the place back when the message is settled. A Limiter is safe for concurrent use.
// Subscriptions that are given the same Limiter share its places. A limiter may keep the
// places of settled messages, as one of rate does; unused places return at once.
//
// A read of an empty topic keeps its places while it waits, for a third of
// SubscribeOptions.Lease at most. A retried message has no place while it is with the
// backend, and asks for one again.
type Limiter interface {
	// Acquire waits until there is a place. It grants at least one place and at most
	// max. When ctx is done it waits no longer: it grants the places that are free, and
	// if there are none it fails with context.Cause(ctx). A limiter that grants nothing
	// for a while may fail at once with a *WaitError. The subscription then has the state
	// Limited, and asks again when that time is over.
	Acquire(ctx context.Context, max int) (int, error)

	// Fill reports that n granted places now hold messages of so many bytes.
	Fill(n int, bytes int64)

	// Release gives places back, never more than were granted.
	Release(Released)
}

// Released says which places are given back, and how runs have ended since the last call.
// Adaptive and Breaker learn from the runs. A message may be settled without a run, and a
// message that waits for its retry in the member keeps its place between two runs.
type Released struct {
	Unused int // granted, but no message came

	Settled int   // held a message
	Bytes   int64 // of those messages, as told to Fill

	Runs   int           // of handlers, that have ended
	Failed int           // of Runs: the handler returned an error or panicked
	Took   time.Duration // of Runs, added up; for SubscribeManual until settlement
}

// A WaitError says that a limiter grants nothing until a moment, and why.
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

// MaxBytes returns a limiter that grants places while the messages held are
// below n bytes. Sizes are known only after a read, so one read may exceed n. A read asks
// for as many messages of the largest size seen so far as fit in the rest. The first read
// of a subscription asks for one message. n must be positive.
func MaxBytes(n int64) Limiter {
	if n < 1 {
		panic("limiter: MaxBytes needs a positive number")
	}
	return newPool(0, n)
}

// Both limits messages and bytes; bytes of zero or less means no bound on them.
func Both(messages int, bytes int64) Limiter {
	if messages < 1 {
		panic("limiter: Both needs a positive number of messages")
	}
	return newPool(messages, max(bytes, 0))
}
