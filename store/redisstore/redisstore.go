// Package redisstore is a [store.Store] in Redis.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/store"
)

// Options are the settings of a [Store]. A zero field means its default.
type Options struct {
	Prefix string // prefix of each key in Redis; the default is "eventbus:store:"
}

// A Store is a [store.Store] that all processes share. Set is one SET, and Get is one GET. An
// empty value takes about 150 bytes of memory. Redis removes each value when its time to live is
// over. Nothing but Redis's own maxmemory limits how many values there are and how large they
// are. Under an eviction policy for all keys, or for keys with a time to live, Redis may remove
// values earlier when its memory is full.
//
// Redis replicates after it has replied, so a value that was set just before a failover may be
// lost. A Store is safe for concurrent use.
type Store struct {
	client redis.Cmdable
	prefix string
}

var _ store.Store = (*Store)(nil)

// New returns a store that uses client, which may be for a single server, for Sentinel or for a
// Cluster. The client must read from masters, because a replica may lack a value. Close it
// yourself when you no longer need the store.
func New(client redis.Cmdable, o Options) *Store {
	return &Store{client: client, prefix: cmp.Or(o.Prefix, "eventbus:store:")}
}

// Set keeps value under key for ttl, which counts in whole milliseconds.
func (s *Store) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := store.CheckTTL(ttl); err != nil {
		return err
	}
	if err := s.client.Set(ctx, s.prefix+key, value, ttl).Err(); err != nil {
		return fmt.Errorf("redisstore: set: %w", err)
	}
	return nil
}

// Get returns the value under key.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	value, err := s.client.Get(ctx, s.prefix+key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("redisstore: get: %w", err)
	}
	return value, true, nil
}
