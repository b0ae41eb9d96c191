// Package storetest tests that a [store.Store] keeps its promises. The author of a store
// calls [TestStore] in a test:
//
//	func TestStore(t *testing.T) {
//		if err := storetest.TestStore(t.Context(), New()); err != nil {
//			t.Fatal(err)
//		}
//	}
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/store"
)

// Lag is the most time that TestStore lets a store keep a value longer than its ttl.
const Lag = 10 * time.Second

// TestStore tests s with keys of its own, and returns the broken promises, or nil. The store
// may have other values, which stay. TestStore takes two seconds, or up to 12 if s keeps
// values longer. It uses package time for its waits, so it may run in package synctest.
func TestStore(ctx context.Context, s store.Store) error {
	t := &trial{ctx: ctx, s: s, prefix: "storetest/" + rand.Text() + "/"}
	var errs []error
	for _, part := range []struct {
		name string
		test func() error
	}{
		{"a missing value", t.missing},
		{"values", t.values},
		{"an empty value", t.empty},
		{"keys", t.keys},
		{"ownership of bytes", t.owners},
		{"concurrent calls", t.concurrent},
		{"time to live", t.expires},
		{"a short time to live", t.tooShort},
		{"an ended context", t.ended},
	} {
		if err := part.test(); err != nil {
			errs = append(errs, fmt.Errorf("storetest: %s: %w", part.name, err))
		}
	}
	return errors.Join(errs...)
}

// A trial is one call of TestStore.
type trial struct {
	ctx    context.Context
	s      store.Store
	prefix string // of all keys
}

func (t *trial) set(key string, value []byte) error {
	if err := t.s.Set(t.ctx, t.prefix+key, value, time.Hour); err != nil {
		return fmt.Errorf("Set(%q): %w", key, err)
	}
	return nil
}

// want returns an error unless key has value.
func (t *trial) want(key string, value []byte) error {
	got, ok, err := t.s.Get(t.ctx, t.prefix+key)
	switch {
	case err != nil:
		return fmt.Errorf("Get(%q): %w", key, err)
	case !ok:
		return fmt.Errorf("Get(%q) finds no value, want %d bytes", key, len(value))
	case !bytes.Equal(got, value):
		return fmt.Errorf("Get(%q) returns %d bytes, %.40q, want %d bytes, %.40q", key, len(got), got, len(value), value)
	}
	return nil
}

// wantNone returns an error unless key has no value.
func (t *trial) wantNone(key string) error {
	got, ok, err := t.s.Get(t.ctx, t.prefix+key)
	if err != nil || ok || got != nil {
		return fmt.Errorf("Get(%q) returns %.40q, %t, %w, want nil, false and no error", key, got, ok, err)
	}
	return nil
}

func (t *trial) missing() error { return t.wantNone("missing") }

// values sets values of several sizes, and replaces each.
func (t *trial) values() error {
	for _, size := range []int{1, 100, 64 << 10, 512 << 10} {
		key := fmt.Sprintf("size-%d", size)
		for _, b := range []byte{0, 'a', 0xff} {
			value := bytes.Repeat([]byte{b}, size)
			if err := errors.Join(t.set(key, value), t.want(key, value)); err != nil {
				return err
			}
		}
	}
	return errors.Join(t.set("size-1", []byte("longer")), t.want("size-1", []byte("longer")))
}

// empty sets an empty value, which is not a missing one.
func (t *trial) empty() error {
	return errors.Join(
		t.set("nil", nil), t.want("nil", nil),
		t.set("empty", []byte{}), t.want("empty", nil),
		t.set("empty", []byte("x")), t.set("empty", nil), t.want("empty", nil),
	)
}

// keys sets a value under each of many keys that a store may confuse.
func (t *trial) keys() error {
	keys := []string{
		"", " ", ".", "..", "a", "A", "a.", ".a", "a..b", "a.b", "a/b", "a//b", "a=b", "a=3Db", "=", "==", "=2E", "a b", "a*", "a>", "*", ">",
		"$", "%2E", "a\x00b", "a\nb", "a\r\nb", "é", "e\u0301", "日本", "\xff\xfe", strings.Repeat("k", 1300),
		strings.Repeat("=", 1300), strings.Repeat("=", 1299) + "2", strings.Repeat(".", 1300),
	}
	var errs []error
	for i, key := range keys {
		errs = append(errs, t.set(key, fmt.Append(nil, i)))
	}
	for i, key := range keys {
		errs = append(errs, t.want(key, fmt.Append(nil, i)))
	}
	return errors.Join(errs...)
}

// owners changes slices that the store has got and returned.
func (t *trial) owners() error {
	value := []byte("before")
	if err := t.set("owner", value); err != nil {
		return err
	}
	copy(value, "after!")
	got, _, err := t.s.Get(t.ctx, t.prefix+"owner")
	if err != nil {
		return err
	}
	if string(got) != "before" {
		return fmt.Errorf("after a change of its slice Get returns %q, want %q: the store retains the slice that Set has got", got, "before")
	}
	copy(got, "after!")
	if err := t.want("owner", []byte("before")); err != nil {
		return fmt.Errorf("the store retains the slice that Get has returned: %w", err)
	}
	return nil
}

// concurrent sets and gets one key from many goroutines.
func (t *trial) concurrent() error {
	var values [][]byte
	for i := range 8 {
		values = append(values, bytes.Repeat([]byte{byte('a' + i)}, 1000+i))
	}
	errs := make([]error, len(values))
	var wg sync.WaitGroup
	for i, value := range values {
		wg.Go(func() {
			for range 20 {
				errs[i] = errors.Join(errs[i], t.set("shared", value), t.wantOneOf("shared", values))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (t *trial) wantOneOf(key string, values [][]byte) error {
	got, _, err := t.s.Get(t.ctx, t.prefix+key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(values, func(v []byte) bool { return bytes.Equal(v, got) }) {
		return fmt.Errorf("Get(%q) returns %d bytes, which no Set has set", key, len(got))
	}
	return nil
}

// expires waits for the end of a ttl. A later Set begins a new one.
func (t *trial) expires() error {
	const ttl = 2 * time.Second
	start := time.Now()
	for _, key := range []string{"short", "renewed", "shortened"} {
		if err := t.s.Set(t.ctx, t.prefix+key, []byte("1"), ttl); err != nil {
			return err
		}
	}
	err := errors.Join(t.set("renewed", []byte("2")), t.set("shortened", []byte("2")),
		t.s.Set(t.ctx, t.prefix+"shortened", []byte("3"), ttl))
	if err != nil {
		return err
	}
	if err := t.want("short", []byte("1")); err != nil && time.Since(start) < ttl {
		return fmt.Errorf("before its time is over: %w", err)
	}
	for _, key := range []string{"short", "shortened"} {
		for err := errors.New(""); err != nil; {
			if err = t.wantNone(key); err != nil && time.Since(start) > ttl+Lag {
				return fmt.Errorf("%v after its time was over: %w", Lag, err)
			}
			if err != nil {
				if ended := t.pause(100 * time.Millisecond); ended != nil {
					return ended
				}
			}
		}
		if took := time.Since(start); took < ttl-100*time.Millisecond {
			return fmt.Errorf("%q is gone after %v, want it kept for %v", key, took, ttl)
		}
	}
	return t.want("renewed", []byte("2"))
}

// tooShort sets a value with a ttl that every store refuses.
func (t *trial) tooShort() error {
	for _, ttl := range []time.Duration{-time.Second, 0, store.MinTTL - 1} {
		if err := t.s.Set(t.ctx, t.prefix+"too short", nil, ttl); err == nil {
			return fmt.Errorf("ttl %v is accepted by Set", ttl)
		}
	}
	return t.wantNone("too short")
}

// ended calls the store with a context that has ended. The calls return.
func (t *trial) ended() error {
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = t.s.Set(ctx, t.prefix+"ended", nil, time.Hour)
		_, _, _ = t.s.Get(ctx, t.prefix+"ended")
	}()
	timer := time.NewTimer(Lag)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("the calls have not returned %v after the end of their ctx", Lag)
	}
}

func (t *trial) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}
