package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// A FileStore is a [BlobStore] that keeps each payload in a file of one folder. Programs on several
// machines need a shared folder. Its methods are safe for concurrent use.
type FileStore struct{ root *os.Root }

var _ BlobStore = (*FileStore)(nil)

// OpenFileStore opens an existing folder. Close the store after you have shut down the buses that
// use it.
func OpenFileStore(folder string) (*FileStore, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("eventbus: file store: %w", err)
	}
	return &FileStore{root: root}, nil
}

// Close closes the folder.
func (s *FileStore) Close() error { return s.root.Close() }

// partial is the suffix of files that are still being written.
const partial = ".part"

// Put writes data to a temporary file, syncs it, and renames it to name, so that a crash leaves no
// incomplete payload under name.
func (s *FileStore) Put(_ context.Context, name string, data []byte) (err error) {
	part := name + partial
	f, err := s.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = s.root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, s.root.Remove(part))
	}
	return s.syncFolder()
}

// syncFolder makes the new name of a file durable.
func (s *FileStore) syncFolder() error {
	folder, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Get opens the payload called name.
func (s *FileStore) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return s.root.Open(name)
}

// DeleteOlder deletes payloads and incomplete files that are older than age, and leaves other files
// in the folder alone. It returns how many it deleted, even if it returns an error. For how to
// choose age see [ClaimCheck]. Call it from time to time, in one program.
func (s *FileStore) DeleteOlder(ctx context.Context, age time.Duration) (deleted int, err error) {
	files, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return 0, fmt.Errorf("eventbus: file store: %w", err)
	}
	before := time.Now().Add(-age)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
		if !isBlobName(strings.TrimSuffix(f.Name(), partial)) {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.ModTime().Before(before) {
			continue
		}
		if err == nil {
			err = s.root.Remove(f.Name())
		}
		if err != nil {
			return deleted, fmt.Errorf("eventbus: file store: %w", err)
		}
		deleted++
	}
	return deleted, nil
}
