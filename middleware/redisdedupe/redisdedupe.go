// Package redisdedupe remembers handled events in Redis, for [middleware.Dedupe].
package redisdedupe

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/middleware"
)

// Options are the settings of a [Store]. A zero field means its default.
type Options struct {
	Prefix string        // the beginning of each key in Redis; default "eventbus:dedupe:"
	Age    time.Duration // how long an event is remembered, at least 1 ms; default 24 hours
}

// A Store is a [middleware.DedupeStore] that all members share. For each handled event it
// keeps a key in Redis for the time Options.Age, in about 150 bytes of memory. Each event
// costs one EXISTS and one SET. Its methods are safe for concurrent use.
type Store struct {
	client redis.Cmdable
	o      Options
}

var _ middleware.DedupeStore = (*Store)(nil)

// New returns a store that uses client. The caller closes the client. The client may be for
// a single server, for Sentinel or for a cluster. New panics if Age is negative.
func New(client redis.Cmdable, o Options) *Store {
	if o.Age < 0 { // go-redis would mean "for ever"
		panic("eventbus: redisdedupe: Age is negative")
	}
	o.Prefix = cmp.Or(o.Prefix, "eventbus:dedupe:")
	o.Age = cmp.Or(o.Age, 24*time.Hour)
	return &Store{client: client, o: o}
}

// Handled reports whether key was marked less than Age ago.
func (s *Store) Handled(ctx context.Context, key string) (bool, error) {
	n, err := s.client.Exists(ctx, s.o.Prefix+key).Result()
	return n > 0, err
}

// Mark remembers key for Age.
func (s *Store) Mark(ctx context.Context, key string) error {
	return s.client.Set(ctx, s.o.Prefix+key, "", s.o.Age).Err()
}
