// Package store keeps values by key for a time.
//
// A [Store] remembers small facts that the members of a service share: the events that a
// group has handled ([middleware.Dedupe]), and the results of its handlers (package results).
// One Store may serve both, because each of them begins its keys with its own name.
//
//	shared, err := natsstore.Open(ctx, js, natsstore.Options{}) // or redisstore.New, store.NewMemory
//	o := eventbus.Options{Middleware: []eventbus.Middleware{
//		middleware.Dedupe(shared, middleware.DedupeOptions{}),
//		results.Middleware(shared, results.Options{}),
//	}}
//
// [Memory] is for one process and for tests. Packages redisstore and natsstore have stores
// that all members share. Package storetest tests other stores.
//
// [middleware.Dedupe]: https://pkg.go.dev/github.com/seed41896749/eventbus/middleware#Dedupe
package store

import (
	"context"
	"fmt"
	"time"
)

// A Store keeps values by key. Its methods are safe for concurrent use, and return soon after
// their ctx has ended, with an error. Any text is a key, also the empty text and texts with
// arbitrary bytes. Two different keys are never confused.
type Store interface {
	// Set keeps value under key for ttl, in place of an earlier value. Calls of Get that
	// begin after Set has returned find it. Set does not retain value. If ttl is less than
	// a millisecond, Set keeps nothing and returns an error; see [CheckTTL]. After any
	// other error the value may be kept.
	//
	// A store may keep a value some seconds longer than ttl. It forgets a value earlier
	// only to stay within its own bounds, which its documentation states.
	Set(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Get returns the value that Set has kept under key, and true. The caller owns the
	// slice. If there is no value, or its ttl is over, Get returns nil, false and a nil
	// error. A value may be empty.
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
}

// MinTTL is the shortest time to live of a value.
const MinTTL = time.Millisecond

// CheckTTL returns the error of Set for a ttl that is too short, or nil. Stores call it.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL {
		return fmt.Errorf("store: the time to live, %v, is less than %v", ttl, MinTTL)
	}
	return nil
}
