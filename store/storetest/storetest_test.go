package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/store"
	"github.com/seed41896749/eventbus/store/storetest"
)

// bad is a store that breaks a promise.
type bad struct {
	store.Store
	set func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error
	get func(s store.Store, ctx context.Context, key string) ([]byte, bool, error)
}

func (b bad) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if b.set == nil {
		return b.Store.Set(ctx, key, value, ttl)
	}
	return b.set(b.Store, ctx, key, value, ttl)
}

func (b bad) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if b.get == nil {
		return b.Store.Get(ctx, key)
	}
	return b.get(b.Store, ctx, key)
}

// Each store breaks one promise, and TestStore names it.
func TestBadStoresAreFound(t *testing.T) {
	errMissing := errors.New("no such key")
	set := func(f func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error) bad {
		return bad{set: f}
	}
	get := func(f func(s store.Store, ctx context.Context, key string) ([]byte, bool, error)) bad {
		return bad{get: f}
	}
	var retained []byte
	for promise, b := range map[string]bad{
		"a missing value": get(func(s store.Store, ctx context.Context, key string) ([]byte, bool, error) {
			value, ok, _ := s.Get(ctx, key)
			if !ok {
				return nil, false, errMissing
			}
			return value, ok, nil
		}),
		"values: Get": set(func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
			return s.Set(ctx, key, value[:min(len(value), 1000)], ttl)
		}),
		"an empty value": get(func(s store.Store, ctx context.Context, key string) ([]byte, bool, error) {
			value, ok, err := s.Get(ctx, key)
			return value, ok && len(value) > 0, err
		}),
		"keys: Get": set(func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
			return s.Set(ctx, strings.TrimRight(key, "."), value, ttl)
		}),
		"retains the slice that Set has got": {
			set: func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
				if strings.HasSuffix(key, "owner") {
					retained = value
				}
				return s.Set(ctx, key, value, ttl)
			},
			get: func(s store.Store, ctx context.Context, key string) ([]byte, bool, error) {
				if strings.HasSuffix(key, "owner") {
					return bytes.Clone(retained), true, nil
				}
				return s.Get(ctx, key)
			},
		},
		"before its time is over": set(func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
			if ttl == 2*time.Second {
				ttl = time.Nanosecond + store.MinTTL
				defer time.Sleep(10 * time.Millisecond)
			}
			return s.Set(ctx, key, value, ttl)
		}),
		"after its time was over": set(func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
			return s.Set(ctx, key, value, max(ttl, time.Minute))
		}),
		"a short time to live": set(func(s store.Store, ctx context.Context, key string, value []byte, ttl time.Duration) error {
			return s.Set(ctx, key, value, max(ttl, store.MinTTL))
		}),
		"an ended context": get(func(s store.Store, ctx context.Context, key string) ([]byte, bool, error) {
			if ctx.Err() != nil {
				time.Sleep(time.Minute)
			}
			return s.Get(ctx, key)
		}),
	} {
		synctest.Test(t, func(t *testing.T) {
			b.Store = store.NewMemory(store.MemoryOptions{})
			require.ErrorContains(t, storetest.TestStore(t.Context(), b), promise)
			time.Sleep(2 * time.Minute) // a call that does not return ends
		})
	}
}
