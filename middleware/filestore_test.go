package middleware_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/middleware"
)

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
