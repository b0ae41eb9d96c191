package middleware_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestHostileReferencesAreRefused(t *testing.T) {
	folder := t.TempDir()
	store, err := middleware.OpenFileStore(folder)
	require.NoError(t, err)
	defer store.Close()
	v := envelope(t, middleware.EnvelopeOptions{ClaimCheck: &middleware.ClaimCheck{Store: store}, MaxPayload: 10_000})
	const name = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	data := []byte("data")
	require.NoError(t, store.Put(t.Context(), name, data))
	digest := fmt.Sprintf("%x", sha256.Sum256(data))
	for about, claim := range map[string]string{
		"empty":            "",
		"two parts":        name + " 4",
		"a path":           "../../../../../../etc/passwd 4 " + digest,
		"a path of length": "../../../../../etc/aliases 4 " + digest,
		"negative size":    name + " -4 " + digest,
		"no size":          name + " four " + digest,
		"too large":        name + " 1000000000000 " + digest,
		"larger than it":   name + " 5 " + digest,
		"smaller than it":  name + " 3 " + digest,
		"another digest":   name + " 4 " + fmt.Sprintf("%x", sha256.Sum256(nil)),
		"gone":             "2BCDEFGHIJKLMNOPQRSTUVWXYZ 4 " + digest,
	} {
		t.Run(about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handled, letter := receive(t, v, eventbus.Event{Headers: eventbus.Headers{{Name: "envelope-claim", Value: claim}}})
				require.Empty(t, handled)
				require.Equal(t, eventbus.ReasonPermanent, letter.Reason, letter.Error)
			})
		})
	}
	e := eventbus.Event{Headers: eventbus.Headers{{Name: "envelope-claim", Value: name + " 4 " + digest}}}
	require.NoError(t, v.Open(t.Context(), &e))
	require.Equal(t, "data", string(e.Payload))
}

// flaky is a store that fails until the test repairs it.
type flaky struct {
	middleware.BlobStore
	broken atomic.Bool
}

var errStore = errors.New("the store is down")

func (f *flaky) Put(ctx context.Context, name string, data []byte) error {
	if f.broken.Load() {
		return errStore
	}
	return f.BlobStore.Put(ctx, name, data)
}

func (f *flaky) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if f.broken.Load() {
		return nil, errStore
	}
	return f.BlobStore.Get(ctx, name)
}

func TestAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{BlobStore: fileStore(t)}
		store.broken.Store(true)
		bus := sealing(t, envelope(t, middleware.EnvelopeOptions{ClaimCheck: &middleware.ClaimCheck{Store: store, MinSize: 10}}))
		small, large := &eventbus.Event{}, &eventbus.Event{Payload: make([]byte, 10)}
		err := bus.Publish(t.Context(), "orders", small, large)
		failed, ok := errors.AsType[*eventbus.PublishError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, failed.Errors, 2)
		require.ErrorIs(t, failed.Errors[0], errStore, "no event is stored")
		require.ErrorIs(t, failed.Errors[1], errStore)
		require.Empty(t, bus.Published("orders"))

		store.broken.Store(false)
		require.NoError(t, bus.Publish(t.Context(), "orders", large))
		store.broken.Store(true)
		handled := handle(t, bus, "orders", "", nil)
		time.Sleep(time.Minute)
		require.Empty(t, *handled)
		store.broken.Store(false)
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, *handled, 1, "handled when the store answers again")
	})
}

// A store that cannot be reached, or a connection to it that ends, is no reason to give up
// an event, whatever its error wraps. A payload that ends early is one.
func TestClaimCheckRetriesAfterALostConnection(t *testing.T) {
	for name, s := range map[string]*failsOnce{
		"the answer is lost": {err: &url.Error{Op: "Get", URL: "http://store/x", Err: io.EOF}},
		"the body is cut":    {err: io.ErrUnexpectedEOF, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.BlobStore = fileStore(t)
				o := middleware.EnvelopeOptions{MaxPayload: math.MaxInt, ClaimCheck: &middleware.ClaimCheck{Store: s, MinSize: 10}}
				bus := sealing(t, envelope(t, o))
				got := handle(t, bus, "orders", "", nil)
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: make([]byte, 1000)}))
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.Len(t, *got, 1)
			})
		})
	}
}

// failsOnce is a store whose first Get fails with err; with cut, after three bytes.
type failsOnce struct {
	middleware.BlobStore
	err  error
	cut  bool
	gets atomic.Int32
}

func (f *failsOnce) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := f.BlobStore.Get(ctx, name)
	switch {
	case err != nil || f.gets.Add(1) > 1:
		return r, err
	case !f.cut:
		return nil, errors.Join(f.err, r.Close())
	}
	type closing struct {
		io.Reader
		io.Closer
	}
	return closing{io.MultiReader(io.LimitReader(r, 3), iotest.ErrReader(f.err)), r}, nil
}
