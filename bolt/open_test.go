package bolt

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// refusal opens a file that cannot be used, and returns its error.
func refusal(t *testing.T, path string) *FileError {
	_, err := Open(t.Context(), path, Options{})
	var e *FileError
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.Path)
	require.EqualError(t, err, "bolt: open: "+path+" "+e.Reason)
	return e
}

// Backends of one process share the file, by whichever path, until the last one closes it.
func TestOneProcessSharesAFile(t *testing.T) {
	path := newFile(t)
	other := filepath.Join(filepath.Dir(path), "other.db")
	first := open(t, path, Options{})
	if runtime.GOOS == "windows" {
		other = path
	} else {
		require.NoError(t, os.Symlink(path, other))
	}
	second := open(t, other, Options{MaxMessages: 1})
	require.NoError(t, first.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	require.ErrorIs(t, second.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}), backend.ErrFull, "it has options of its own")

	src, err := second.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute, Start: backend.StartLatest})
	require.NoError(t, err)
	received := make(chan int, 1)
	go func() {
		ds, _ := src.Receive(context.WithoutCancel(t.Context()), 10, 0)
		received <- len(ds)
	}()
	require.NoError(t, first.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	require.Equal(t, 1, <-received, "a publish of one wakes a member of the other")

	require.NoError(t, first.Close())
	require.NoError(t, second.Ping(t.Context()))
	require.NoError(t, second.Close())
	require.ErrorIs(t, second.Ping(t.Context()), backend.ErrClosed)
	require.Empty(t, openStores)
}

// Many opens and closes at a time never find the file locked by their own process.
func TestOpensAtATime(t *testing.T) {
	path := newFile(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				b, err := Open(t.Context(), path, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// tenant names the file that a process of this test has open until it is killed.
const tenant = "EVENTBUS_BOLT_TENANT"

// A second process learns at once that the file is in use. When the first is dead, it opens the file.
func TestSecondProcess(t *testing.T) {
	if path := os.Getenv(tenant); path != "" {
		open(t, path, Options{})
		fmt.Fprintln(os.Stdout, "open")
		select {}
	}
	path := newFile(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), tenant+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, bufio.NewScanner(out).Scan())

	began := time.Now()
	e := refusal(t, path)
	require.ErrorIs(t, e, backend.ErrUnavailable)
	require.Contains(t, e.Reason, "is open in another process")
	require.Less(t, time.Since(began), 2*time.Second)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	_, err = Open(ctx, path, Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(began), 900*time.Millisecond, "the context bounds the wait")

	time.AfterFunc(1500*time.Millisecond, func() { _ = cmd.Process.Kill() })
	bus, err := eventbus.Open(t.Context(), "bolt:"+filepath.ToSlash(path), eventbus.Options{OpenTimeout: 20 * time.Second}, Driver{})
	require.NoError(t, err, "OpenTimeout waits for the end of the other process")
	require.Error(t, cmd.Wait())
	require.NoError(t, bus.Shutdown(t.Context()))
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	folder := t.TempDir()
	name := func(name string) string { return filepath.Join(folder, name) }

	e := refusal(t, filepath.Join(folder, "nowhere", "events.db"))
	require.ErrorIs(t, e, backend.ErrRefused)
	require.Contains(t, e.Reason, "its folder does not exist")

	e = refusal(t, folder)
	require.ErrorIs(t, e, backend.ErrRefused)
	require.Contains(t, e.Reason, "is a folder")

	for text, size := range map[string]int{"short": 100, "long": 100_000} {
		require.NoError(t, os.WriteFile(name(text), make([]byte, size), 0o600))
		e = refusal(t, name(text))
		require.ErrorIs(t, e, backend.ErrRefused)
		require.Contains(t, e.Reason, "is not a bbolt file")
		content, err := os.ReadFile(name(text))
		require.NoError(t, err)
		require.Equal(t, make([]byte, size), content, "the file was changed")
	}

	write := func(path string, f func(tx *bbolt.Tx) error) {
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(f))
		require.NoError(t, db.Close())
	}
	write(name("foreign"), func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	})
	e = refusal(t, name("foreign"))
	require.ErrorIs(t, e, backend.ErrRefused)
	require.Contains(t, e.Reason, "of another program")

	require.NoError(t, open(t, name("newer"), Options{}).Close())
	write(name("newer"), func(tx *bbolt.Tx) error { return tx.Bucket([]byte("format")).SetSequence(3) })
	e = refusal(t, name("newer"))
	require.ErrorIs(t, e, backend.ErrRefused)
	require.Contains(t, e.Reason, "has format 3, and this program knows formats 1 to 2")

	write(name("newer"), func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("format")) })
	open(t, name("newer"), Options{}) // as the example of earlier versions has written it
}

// A truncated file, or one with overwritten pages, is reported. It neither ends the process nor
// blocks its other calls.
func TestDamage(t *testing.T) {
	path := newFile(t)
	whole := open(t, path, Options{})
	for range 50 {
		require.NoError(t, whole.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: make([]byte, 20_000)}}))
	}
	require.NoError(t, whole.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)

	for _, size := range []int{3 * os.Getpagesize(), 200_000, 1_000_000} {
		require.NoError(t, os.WriteFile(path, content[:size], 0o600))
		e := refusal(t, path)
		require.ErrorIs(t, e, backend.ErrRefused)
		require.Contains(t, e.Reason, "is damaged")
	}

	for seed := range 20 {
		harmed := append([]byte{}, content...)
		page := os.Getpagesize() * (2 + seed)
		for i := range 64 {
			harmed[page+i] = byte(seed*i + 255)
		}
		require.NoError(t, os.WriteFile(path, harmed, 0o600))
		b, err := Open(t.Context(), path, Options{})
		if err != nil {
			require.ErrorIs(t, err, backend.ErrRefused)
			continue
		}
		_, err = b.Read(t.Context(), "orders", "", 1000)
		if err == nil {
			err = b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}})
		}
		if err != nil {
			require.NotNil(t, backend.Class(err), "%v", err)
		}
		if b.store.damage.Load() != nil {
			require.ErrorContains(t, b.Ping(t.Context()), "is damaged", "it stops")
		}
		require.NoError(t, b.Close())
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	open(t, path, Options{})
}

// A file keeps the format that earlier programs read, until it has data that they would not obey.
func TestTheFormatGrowsWhenItMust(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(t *testing.T, b *Backend) error
		want uint64
	}{
		"plain": {func(t *testing.T, b *Backend) error {
			settleAll(t, attach(t, b, backend.Config{Group: "g"}))
			_, err := b.Declare(t.Context(), "orders", backend.Declaration{Replace: true})
			require.NoError(t, err)
			require.NoError(t, b.ResetGroup(t.Context(), "orders", "g", ""))
			return b.Resume(t.Context(), "orders", "g")
		}, oldestFormat},
		"settings": {func(t *testing.T, b *Backend) error {
			_, err := b.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{MaxMessages: 1}})
			return err
		}, newestFormat},
		"pause": {func(t *testing.T, b *Backend) error {
			attach(t, b, backend.Config{Group: "g"})
			return b.Pause(t.Context(), "orders", "g", backend.Pause{})
		}, newestFormat},
		"ephemeral": {func(t *testing.T, b *Backend) error {
			return attach(t, b, backend.Config{Group: "g", Ephemeral: true}).Close()
		}, newestFormat},
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			b := open(t, path, Options{})
			require.NoError(t, b.Publish(t.Context(), numbered("", 2, 0)))
			require.NoError(t, row.use(t, b))
			require.NoError(t, b.Close())
			b = open(t, path, Options{})
			require.NoError(t, b.view(t.Context(), "test", func(tx *txn) error {
				require.Equal(t, row.want, tx.format())
				return nil
			}))
		})
	}
}
