package bolt

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"
)

// A txn is the part of one call in a transaction. It remembers its first failed write. The part
// is then rolled back, so the code that writes need not check each error.
type txn struct {
	*bbolt.Tx
	topics    *bbolt.Bucket
	used      *bbolt.Bucket // its sequence is the highest offset of all deleted topics
	space     *spaceBudget  // of the transaction
	lastTopic *topic        // the last result of makeTopic; nil: none
	wrote     bool
	err       error
}

func newTxn(tx *bbolt.Tx, r *spaceBudget) *txn {
	return &txn{Tx: tx, space: r, topics: tx.Bucket([]byte("topics")), used: tx.Bucket([]byte("used"))}
}

func (t *txn) wroteOrFailed(err error) {
	t.wrote = true
	if t.err == nil {
		t.err = err
	}
}

func (t *txn) put(b *bbolt.Bucket, key, value []byte) { t.wroteOrFailed(b.Put(key, value)) }
func (t *txn) remove(b *bbolt.Bucket, key []byte)     { t.wroteOrFailed(b.Delete(key)) }

// next returns the next number of a bucket, the first time 1.
func (t *txn) next(b *bbolt.Bucket) uint64 {
	n, err := b.NextSequence()
	t.wroteOrFailed(err)
	return n
}

// A parent is a bucket.
type parent interface {
	CreateBucketIfNotExists(name []byte) (*bbolt.Bucket, error)
}

// makeBucket makes a bucket in p, with buckets in it.
func (t *txn) makeBucket(p parent, name string, parts ...string) (b *bbolt.Bucket, err error) {
	b, err = p.CreateBucketIfNotExists([]byte(name))
	for _, part := range parts {
		if err == nil {
			_, err = b.CreateBucketIfNotExists([]byte(part))
		}
	}
	t.wroteOrFailed(err)
	return b, err
}

// unique returns a number that is greater than all before.
func (t *txn) unique() uint64 { return t.next(t.topics) }

// pack writes numbers so that they compare as bytes.
func pack(numbers ...uint64) []byte {
	b := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// numberAt returns number i of a packed text.
func numberAt(b []byte, i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }

// micros returns t as the file has it: microseconds, so that no delay overflows.
func micros(t time.Time) uint64 { return uint64(t.UnixMicro()) }

// microsAfter returns the first moment that is not before t plus d. Zero is at once.
func microsAfter(t time.Time, d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return micros(t.Add(d).Add(time.Microsecond - 1))
}
