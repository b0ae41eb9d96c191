package bolt

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// The versions of the buckets that this package reads and writes. A file without a version has
// oldest. A file gets newest with its first setting of a topic, pause or ephemeral group, because
// earlier programs break their promises: they remove kept messages, for example. Other files stay at
// oldest, so that earlier programs can read them.
const (
	oldest = 1
	newest = 2
)

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
	if b := tx.Bucket([]byte("format")); b != nil && (b.Sequence() < oldest || b.Sequence() > newest) {
		return refused("has format %d, and this program knows formats %d to %d: use the version of the program that has written the file",
			b.Sequence(), oldest, newest)
	}
	for _, name := range []string{"topics", "used"} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucketIfNotExists([]byte("format"))
	if err == nil && b.Sequence() < oldest {
		err = b.SetSequence(oldest)
	}
	return err
}

// upgrade gives the file the newest format.
func (t *txn) upgrade() {
	if t.format() < newest {
		t.note(t.Bucket([]byte("format")).SetSequence(newest))
	}
}

// format returns the version of the file.
func (t *txn) format() uint64 { return t.Bucket([]byte("format")).Sequence() }
