// Package boltbackend is a backend on one bbolt file, in the process itself. It is the
// code of docs/BACKEND.md, for authors of other backends to copy.
//
// The file has these buckets. Numbers are eight bytes, so keys sort by number.
//
//	topics/                         its sequence numbers groups, members, resets and hand-outs
//	  TOPIC/                        its sequence is the number of messages in the log
//	  TOPIC/log/                    offset → record; its sequence is the last offset
//	  TOPIC/once/                   ID → offset, end of the window
//	  TOPIC/marks/                  offset → ID: the entries of once, oldest first
//	  TOPIC/members/                group, member → instance, incarnation: members with an Instance
//	  TOPIC/groups/GROUP/           state → identity, last reset, cursor
//	  TOPIC/groups/GROUP/entries/   offset → attempt, hand-out, due, held
//	  TOPIC/groups/GROUP/schedule/  due, offset → nothing: the entries by due moment
//	used/                           its sequence is the highest offset of all deleted topics
//
// The cursor of a group is the lowest offset that was never handed out. An entry is a
// message that was handed out and is not settled. Every call is one transaction, so a
// crash leaves each call done or not begun.
package boltbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// Options are the settings of a [Store]. The zero value of a field means its default.
type Options struct {
	MaxMessages uint64        // that a topic keeps; 1,048,576
	OnceWindow  time.Duration // how long Once remembers an ID; 2 minutes
}

func (o Options) withDefaults() Options {
	if o.MaxMessages == 0 {
		o.MaxMessages = 1 << 20
	}
	if o.OnceWindow <= 0 {
		o.OnceWindow = 2 * time.Minute
	}
	return o
}

// A Store is one open file. Several backends of this process may share it. Another
// process cannot open the file meanwhile.
type Store struct {
	options Options

	open sync.RWMutex // guards db; each transaction holds it for reading
	db   *bolt.DB

	mu      sync.Mutex               // guards all that follows
	changed map[string]chan struct{} // by topic; closed when something may be due
	members map[uint64]int64         // by identity of the group
	live    map[uint64]bool          // the members of this process that have an Instance
}

// OpenStore opens the file at path, and makes it if there is none. It waits for at
// most a second if another process has the file open.
func OpenStore(path string, o Options) (*Store, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, failed("open", unavailable(err))
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte("topics"))
		if err == nil {
			_, err = tx.CreateBucketIfNotExists([]byte("used"))
		}
		return err
	})
	if err != nil {
		return nil, failed("open", unavailable(errors.Join(err, db.Close())))
	}
	return &Store{
		options: o.withDefaults(), db: db,
		changed: map[string]chan struct{}{}, members: map[uint64]int64{}, live: map[uint64]bool{},
	}, nil
}

// Close waits for transactions and closes the file. Backends on it get
// [backend.ErrUnavailable] from then on.
func (s *Store) Close() error {
	s.open.Lock()
	defer s.open.Unlock()
	return s.db.Close()
}

// run runs f in a transaction. An error of f rolls it back, so the call had no effect.
// After a failed commit the outcome is unknown.
func (s *Store) run(ctx context.Context, writable bool, f func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	s.open.RLock()
	defer s.open.RUnlock()
	tx, err := s.db.Begin(writable)
	if err != nil {
		return unavailable(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	t := &txn{Tx: tx, topics: tx.Bucket([]byte("topics")), used: tx.Bucket([]byte("used"))}
	err = cmp.Or(f(t), t.err)
	switch {
	case err != nil && backend.Class(err) == nil:
		return unavailable(err)
	case err != nil || !t.wrote:
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	return nil
}

// unavailable says that a call certainly had no effect.
func unavailable(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) }

// whenChanged returns a channel that is closed at the next wake of topic.
func (s *Store) whenChanged(topic string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed[topic] == nil {
		s.changed[topic] = make(chan struct{})
	}
	return s.changed[topic]
}

// wake lets every member that waits for topic look again. Every call that may make a
// message due earlier ends with wake.
func (s *Store) wake(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.changed[topic]; c != nil {
		close(c)
		delete(s.changed, topic)
	}
}

// count adds n to the members of a group, and returns how many there are.
func (s *Store) count(group uint64, n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := s.members[group] + n
	if members == 0 {
		delete(s.members, group)
	} else {
		s.members[group] = members
	}
	return members
}
