package bolt

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// format is the version of the buckets that this package reads and writes. A file without a
// version has format 1.
const format = 1

// prepare checks that a file of size bytes is whole and of this package. It then makes the buckets
// that are missing.
func prepare(tx *bbolt.Tx, path string, size int64) error {
	refused := func(reason string, args ...any) error {
		return &FileError{Path: path, Err: backend.ErrRefused, Reason: fmt.Sprintf(reason, args...)}
	}
	if tx.Size() > size {
		return damaged(path, fmt.Sprintf("%d bytes of %d are missing", tx.Size()-size, tx.Size()))
	}
	root, _ := tx.Cursor().First()
	if root != nil && tx.Bucket([]byte("topics")) == nil {
		return refused("is a bbolt file of another program: name another file")
	}
	if b := tx.Bucket([]byte("format")); b != nil && b.Sequence() != format {
		return refused("has format %d, and this program knows format %d: use the version of the program that has written the file",
			b.Sequence(), format)
	}
	for _, name := range []string{"topics", "used"} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucketIfNotExists([]byte("format"))
	if err == nil {
		err = b.SetSequence(format)
	}
	return err
}
