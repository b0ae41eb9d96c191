package bolt

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func TestDriver(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for raw, want := range map[string]struct {
		file string
		o    Options
	}{
		"bolt://" + filepath.ToSlash(filepath.Join(folder, "a.db")): {"a.db", Options{}},
		"bolt:" + filepath.ToSlash(filepath.Join(folder, "b.db")):   {"b.db", Options{}},
		"bolt:c.db?max_messages=2&once_window=90s&min_free=1MiB":    {"c.db", Options{MaxMessages: 2, OnceWindow: 90 * time.Second, MinFree: 1 << 20}},
		"bolt:./d%20e.db": {"d e.db", Options{}},
		"bolt://" + filepath.ToSlash(filepath.Join(folder, "f%3F.db")): {"f?.db", Options{}},
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err, raw)
		require.NoError(t, Driver{}.CheckURL(u), raw)
		b, err := Driver{}.Open(t.Context(), u)
		require.NoError(t, err, raw)
		require.Equal(t, want.o.withDefaults(), b.(*Backend).options, raw)
		require.FileExists(t, filepath.Join(folder, want.file), raw)
		identity := backend.IdentityOf(b)
		require.Equal(t, "bolt", identity.System)
		require.Equal(t, want.file, filepath.Base(identity.Address))
		require.NoError(t, b.Close())
		require.NoError(t, b.Close(), "a second time")
		_, err = b.(*Backend).Topics(t.Context())
		require.ErrorIs(t, err, backend.ErrClosed)
	}
}

func TestWrongURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"bolt:x.db?max_mesages=2":    `unknown parameter "max_mesages"; did you mean "max_messages"?`,
		"bolt:x.db?max_messages=0":   `parameter "max_messages": must be positive`,
		"bolt:x.db?once_window=90":   `parameter "once_window": is not a duration with its unit, such as 90s`,
		"bolt:":                      "the URL names no file, as in bolt:events.db",
		"bolt://":                    "the URL names no file, as in bolt:events.db",
		"bolt:///":                   "the URL names no file, as in bolt:events.db",
		"bolt://events.db":           "the URL has a host: a path from the root has three slashes, as in bolt:///var/lib/events.db, and another has none, as in bolt:events.db",
		"bolt://u:secret@/events.db": "the URL has a host: a path from the root has three slashes, as in bolt:///var/lib/events.db, and another has none, as in bolt:events.db",
		"bolt:///folder/":            "the path in the URL ends with a slash: name a file in that folder",
		"bolt:x#1.db":                "the URL has something behind #, which in a path is written %23",
		"bolt:x%zz.db":               "the path in the URL has a wrong % escape",
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err, raw)
		require.EqualError(t, Driver{}.CheckURL(u), "bolt: "+want, raw)
		_, err = Driver{}.Open(t.Context(), u)
		require.EqualError(t, err, "bolt: open: "+want, raw)
	}
	_, err := os.Stat("x.db")
	require.ErrorIs(t, err, os.ErrNotExist, "a refused URL makes no file")
}
