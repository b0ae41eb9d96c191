package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func TestHeaders(t *testing.T) {
	var h backend.Headers
	h.Set("a", "1")
	h.Set("b", "2")
	h.Set("a", "3")
	require.Equal(t, backend.Headers{{"a", "3"}, {"b", "2"}}, h)
	require.Equal(t, "3", h.Get("a"))
	require.Equal(t, 4, h.Size())
	_, ok := h.Lookup("A")
	require.False(t, ok, "names are compared exactly")
	h.Del("a")
	h.Del("nothing")
	require.Equal(t, backend.Headers{{"b", "2"}}, h)
}

func TestBatchError(t *testing.T) {
	full := fmt.Errorf("x: %w", backend.ErrFull)
	err := backend.AsBatchError([]error{nil, full, nil})
	require.EqualError(t, err, "1 of 3 failed, first: x: full")
	require.ErrorIs(t, err, backend.ErrFull)
	wrapped := fmt.Errorf("publish: %w", err)
	require.NoError(t, backend.ErrorAt(wrapped, 0))
	require.Equal(t, full, backend.ErrorAt(wrapped, 1))
	require.Equal(t, full, backend.ErrorAt(full, 7), "any other error is that of every item")
	require.NoError(t, backend.ErrorAt(nil, 0))
	require.ErrorIs(t, backend.ErrorAt(wrapped, 3), backend.ErrUnknownOutcome, "an item without an entry")
	require.NoError(t, backend.AsBatchError([]error{nil, nil}))
}

func TestNotStored(t *testing.T) {
	for _, e := range []error{backend.ErrUnavailable, backend.ErrDenied, backend.ErrFull, backend.ErrTooLarge, backend.ErrClosed, errors.ErrUnsupported} {
		require.True(t, backend.NotStored(fmt.Errorf("x: %w", e)), "%v", e)
		require.False(t, backend.NotStored(errors.Join(e, backend.ErrUnknownOutcome)), "%v, but unknown", e)
	}
	require.False(t, backend.NotStored(backend.ErrUnknownOutcome))
	require.False(t, backend.NotStored(errors.New("anything else")))
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "a.b", "A-Z_0.9", strings.Repeat("x", backend.MaxName)} {
		require.NoError(t, backend.CheckName(good), good)
	}
	for _, bad := range []string{"", ".", "a.", ".a", "a..b", "a b", "ä", "a*", "a\n", "a/b", "{a}", strings.Repeat("x", backend.MaxName+1)} {
		require.Error(t, backend.CheckName(bad), "%q", bad)
	}
}

func TestStartAfter(t *testing.T) {
	position, ok := backend.StartAfter("7").After()
	require.True(t, ok)
	require.Equal(t, "7", position)
	for _, s := range []backend.Start{backend.StartEarliest, backend.StartLatest, "after"} {
		_, ok := s.After()
		require.False(t, ok, s)
	}
}

type good struct{ backend.Backend }

func (good) Limits() backend.Limits { return backend.Limits{Batch: 7} }

type wrapper struct{ backend.Backend }

func (w wrapper) Unwrap() backend.Backend { return w.Backend }

// As looks through wrappers.
func TestAs(t *testing.T) {
	require.Equal(t, 7, backend.LimitsOf(wrapper{wrapper{good{}}}).Batch)
	require.Zero(t, backend.LimitsOf(wrapper{}))
	_, ok := backend.As[backend.Pinger](wrapper{good{}})
	require.False(t, ok)
	_, ok = backend.As[backend.Pinger](nil)
	require.False(t, ok)
}

func TestClass(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{errors.New("other"), nil},
		{fmt.Errorf("nats: %w", backend.ErrFull), backend.ErrFull},
		{fmt.Errorf("%w: %w", backend.ErrUnavailable, backend.ErrUnknownOutcome), backend.ErrUnknownOutcome},
		{backend.BatchError{nil, backend.ErrLeaseLost}, backend.ErrLeaseLost},
		{errors.ErrUnsupported, errors.ErrUnsupported},
	} {
		require.Equal(t, c.want, backend.Class(c.err), "%v", c.err)
	}
}

// A backend without a verb says so in words, and in a way that programs can tell.
func TestMissingVerbs(t *testing.T) {
	var none struct{ backend.Backend }
	_, declareErr := backend.Declare(t.Context(), none, "orders", backend.Declaration{})
	_, readErr := backend.Read(t.Context(), none, "orders", "", 1)
	_, statsErr := backend.StatsOf(t.Context(), none, "orders", "billing")
	for _, err := range []error{
		readErr, statsErr, backend.Ping(t.Context(), none), declareErr,
	} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "this backend cannot ")
	}
}
