package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed41896749/eventbus/backend"
)

// Open opens the file at path, creating it if necessary; its directory must exist. Several backends of
// one process can open the same file. While another process has it open, Open waits for up to a
// second. If the file cannot be used, the error is a [FileError].
func Open(ctx context.Context, path string, o Options) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("open", unavailable(err))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, failed("open", unavailable(err))
	}
	select {
	case openLock <- struct{}{}:
		defer func() { <-openLock }()
	case <-ctx.Done():
		return nil, failed("open", unavailable(ctx.Err()))
	}
	s := findOpen(path)
	if s == nil {
		if s, err = openStore(path, lockTimeout(ctx)); err != nil {
			return nil, failed("open", err)
		}
		openStores = append(openStores, s)
	}
	s.users++
	return newBackend(s, o), nil
}

// The open stores of this process. They are global because the lock of a file belongs to the
// process: a second store on the file would wait for the first one. Only the holder of opening,
// a lock that contexts can bound, uses stores and the users of a store.
var (
	openLock   = make(chan struct{}, 1)
	openStores []*store
)

// findOpen returns the open store of the file at path, or nil. The file may have several paths.
func findOpen(path string) *store {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(openStores, func(s *store) bool { return os.SameFile(s.info, info) })
	if i < 0 {
		return nil
	}
	return openStores[i]
}

// release ends the use of s by one backend. The last one closes the file.
func (s *store) release() error {
	openLock <- struct{}{}
	defer func() { <-openLock }()
	if s.users--; s.users > 0 {
		return nil
	}
	openStores = slices.DeleteFunc(openStores, func(other *store) bool { return other == s })
	return s.close()
}

// lockTimeout returns how long to wait for another process.
func lockTimeout(ctx context.Context) time.Duration {
	const most, least = time.Second, time.Millisecond // zero would mean without end
	if deadline, ok := ctx.Deadline(); ok {
		return max(least, min(most, time.Until(deadline)))
	}
	return most
}

// openStore opens a file that no store of this process has open.
func openStore(path string, wait time.Duration) (*store, error) {
	s := &store{path: path, changed: map[string]chan struct{}{}, members: map[uint64]int64{}, live: map[uint64]bool{}, ephemerals: map[uint64]*ephemeralGroup{}}
	err := recoverFault(func() error { return s.openFile(wait) }, func(why any) error {
		return errors.Join(damageError(path, why), unlockAndClose(s.file))
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openFile opens the file, checks it, makes missing buckets, and deletes the ephemeral groups of earlier processes.
func (s *store) openFile(wait time.Duration) (err error) {
	s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{
		Timeout:      wait,
		FreelistType: bbolt.FreelistMapType, // the other type is slow in large files
		OpenFile: func(name string, flag int, perm os.FileMode) (_ *os.File, err error) {
			s.file, err = os.OpenFile(name, flag, perm)
			return s.file, err
		},
	})
	if err != nil {
		return openError(s.path, err)
	}
	if s.info, err = s.file.Stat(); err != nil {
		return errors.Join(unavailable(err), s.db.Close())
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if err := checkFormat(tx, s.path, s.info.Size()); err != nil {
			return err
		}
		return s.deleteLeftovers(newTxn(tx, nil))
	})
	if err != nil {
		return errors.Join(withClass(err), s.db.Close())
	}
	return nil
}

// openError explains an error of bbolt's Open.
func openError(path string, err error) error {
	e := &FileError{Path: path, Err: backend.ErrRefused}
	info, missing := os.Stat(filepath.Dir(path))
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		e.Reason, e.Err = "is open in another process: one process at a time can use a file", backend.ErrUnavailable
	case errors.Is(missing, fs.ErrNotExist):
		e.Reason = "cannot be made, because its folder does not exist: make the folder first"
	case missing == nil && !info.IsDir():
		e.Reason = "cannot be made, because the path of its folder is a file"
	case errors.Is(err, fs.ErrPermission):
		e.Reason, e.Err = "cannot be opened, because this user may not read and write it or its folder", backend.ErrDenied
	case errors.Is(err, bbolterrors.ErrInvalid), errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		e.Reason = fmt.Sprintf("is not a bbolt file, or is damaged (%v): name another file, or restore this one from a copy", err)
	default:
		e.Reason, e.Err = fmt.Sprintf("cannot be opened: %v", err), backend.ErrUnavailable
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		e.Reason, e.Err = "is a folder: name a file in it", backend.ErrRefused
	}
	return e
}

// The versions of the buckets that this package reads and writes. A file without a version has
// oldestFormat. A file gets newestFormat with its first setting of a topic, pause or ephemeral group, because
// earlier programs break their promises: they remove kept messages, for example. Other files stay at
// oldestFormat, so that earlier programs can read them.
const (
	oldestFormat = 1
	newestFormat = 2
)

// checkFormat checks that a file of size bytes is whole and of this package. It then makes the buckets
// that are missing.
func checkFormat(tx *bbolt.Tx, path string, size int64) error {
	refused := func(reason string, args ...any) error {
		return &FileError{Path: path, Err: backend.ErrRefused, Reason: fmt.Sprintf(reason, args...)}
	}
	if tx.Size() > size {
		return damageError(path, fmt.Sprintf("%d bytes of %d are missing", tx.Size()-size, tx.Size()))
	}
	root, _ := tx.Cursor().First()
	if root != nil && tx.Bucket([]byte("topics")) == nil {
		return refused("is a bbolt file of another program: name another file")
	}
	if b := tx.Bucket([]byte("format")); b != nil && (b.Sequence() < oldestFormat || b.Sequence() > newestFormat) {
		return refused("has format %d, and this program knows formats %d to %d: use the version of the program that has written the file",
			b.Sequence(), oldestFormat, newestFormat)
	}
	for _, name := range []string{"topics", "used"} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucketIfNotExists([]byte("format"))
	if err == nil && b.Sequence() < oldestFormat {
		err = b.SetSequence(oldestFormat)
	}
	return err
}

// upgrade gives the file the newest format.
func (t *txn) upgrade() {
	if t.format() < newestFormat {
		t.wroteOrFailed(t.Bucket([]byte("format")).SetSequence(newestFormat))
	}
}

// format returns the version of the file.
func (t *txn) format() uint64 { return t.Bucket([]byte("format")).Sequence() }
