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

// Open opens the file at path, and makes it if there is none. Its folder must exist. Backends
// of one process may have the same file open. Open waits for at most a second while another
// process has it open. The error of a file that cannot be used is a [FileError].
func Open(ctx context.Context, path string, o Options) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("open", unavailable(err))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, failed("open", unavailable(err))
	}
	select {
	case opening <- struct{}{}:
		defer func() { <-opening }()
	case <-ctx.Done():
		return nil, failed("open", unavailable(ctx.Err()))
	}
	s := shared(path)
	if s == nil {
		if s, err = openStore(path, timeout(ctx)); err != nil {
			return nil, failed("open", err)
		}
		stores = append(stores, s)
	}
	s.users++
	return newBackend(s, o), nil
}

// The open stores of this process. They are global because the lock of a file belongs to the
// process: a second store on the file would wait for the first one. Only the holder of opening,
// a lock that contexts can bound, uses stores and the users of a store.
var (
	opening = make(chan struct{}, 1)
	stores  []*store
)

// shared returns the open store of the file at path, or nil. The file may have several paths.
func shared(path string) *store {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(stores, func(s *store) bool { return os.SameFile(s.info, info) })
	if i < 0 {
		return nil
	}
	return stores[i]
}

// release ends the use of s by one backend. The last one closes the file.
func (s *store) release() error {
	opening <- struct{}{}
	defer func() { <-opening }()
	if s.users--; s.users > 0 {
		return nil
	}
	stores = slices.DeleteFunc(stores, func(other *store) bool { return other == s })
	return s.close()
}

// timeout returns how long to wait for another process.
func timeout(ctx context.Context) time.Duration {
	const most, least = time.Second, time.Millisecond // zero would mean without end
	if deadline, ok := ctx.Deadline(); ok {
		return max(least, min(most, time.Until(deadline)))
	}
	return most
}

// openStore opens a file that no store of this process has open.
func openStore(path string, wait time.Duration) (*store, error) {
	s := &store{path: path, changed: map[string]chan struct{}{}, members: map[uint64]int64{}, live: map[uint64]bool{}, ephemerals: map[uint64]*ephemeral{}}
	err := guarded(func() error { return s.openFile(wait) }, func(why any) error {
		return errors.Join(damaged(path, why), abandon(s.file))
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
		return unusable(s.path, err)
	}
	if s.info, err = s.file.Stat(); err != nil {
		return errors.Join(unavailable(err), s.db.Close())
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if err := prepare(tx, s.path, s.info.Size()); err != nil {
			return err
		}
		return s.sweep(newTxn(tx, nil))
	})
	if err != nil {
		return errors.Join(classed(err), s.db.Close())
	}
	return nil
}

// unusable explains an error of bbolt's Open.
func unusable(path string, err error) error {
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
