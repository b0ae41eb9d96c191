package middleware_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

// bomb is 96 MiB of zeros, compressed, without a size.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	require.NoError(t, err)
	zeros := make([]byte, 1<<20)
	for range 96 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestBombsAreRefused(t *testing.T) {
	v := envelope(t, middleware.EnvelopeOptions{Compress: &middleware.Compress{}})
	zstdOf := func(payload []byte) eventbus.Event {
		return eventbus.Event{ID: "1", Headers: eventbus.Headers{{Name: "content-encoding", Value: "zstd"}}, Payload: payload}
	}
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, e := range map[string]eventbus.Event{
		"bomb":                    zstdOf(bomb(t)),
		"one byte more than fits": zstdOf(encoder.EncodeAll(make([]byte, eventbus.MaxPayload+1), nil)),
		"large size, few bytes":   zstdOf(encoder.EncodeAll(make([]byte, 16<<20), nil)[:100]),
		"noise":                   zstdOf([]byte("noise")),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			opened := e
			require.Error(t, v.Open(t.Context(), &opened))
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(80<<20), "bytes allocated")
			require.Equal(t, e, opened, "after an error the event is unchanged")

			synctest.Test(t, func(t *testing.T) {
				handled, letter := receive(t, v, e)
				require.Empty(t, handled)
				require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
			})
		})
	}
	fits := zstdOf(encoder.EncodeAll(make([]byte, eventbus.MaxPayload), nil))
	require.NoError(t, v.Open(t.Context(), &fits))
	require.Len(t, fits.Payload, eventbus.MaxPayload)
}

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

func TestFileStoreKeepsAndDeletes(t *testing.T) {
	folder := t.TempDir()
	s, err := middleware.OpenFileStore(folder)
	require.NoError(t, err)
	defer s.Close()
	old, young := strings.Repeat("A", 26), strings.Repeat("B", 26)
	require.NoError(t, s.Put(t.Context(), old, []byte("old")))
	require.NoError(t, s.Put(t.Context(), young, nil))
	require.Error(t, s.Put(t.Context(), "../OUT", nil), "no file outside of the folder")
	_, err = s.Get(t.Context(), "../OUT")
	require.Error(t, err)
	crashed, foreign := old+".part", "README"
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{crashed, foreign} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	for _, name := range []string{old, crashed, foreign} {
		require.NoError(t, os.Chtimes(filepath.Join(folder, name), past, past))
	}

	n, err := s.DeleteOlder(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = s.DeleteOlder(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, 2, n, "the payload, and the rest of a crash")
	_, err = s.Get(t.Context(), old)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, name := range []string{young, foreign} {
		r, err := s.Get(t.Context(), name)
		require.NoError(t, err, name)
		require.NoError(t, r.Close())
	}
	_, err = middleware.OpenFileStore(filepath.Join(folder, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
