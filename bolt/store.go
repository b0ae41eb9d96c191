package bolt

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// A store is one open file. The backends of this process share it.
type store struct {
	path    string // absolute
	users   int    // the backends on it; only the holder of opening uses it
	commits groupCommit

	open sync.RWMutex // guards db, file and info; each transaction holds it for reading
	db   *bbolt.DB
	file *os.File
	info os.FileInfo // identifies the file

	damage atomic.Pointer[FileError] // of the file, once it was found

	mu      sync.Mutex               // guards all that follows
	changed map[string]chan struct{} // by topic; closed when something may be due
	members map[uint64]int64         // by identity of the group
	live    map[uint64]bool          // the members of this process that have an Instance

	ephemerals map[uint64]*ephemeralGroup // by identity; each ephemeral group of the file
}

// close waits for running transactions, then closes the file.
func (s *store) close() error {
	s.open.Lock()
	defer s.open.Unlock()
	if s.damage.Load() != nil {
		return unlockAndClose(s.file) // the damage may have interrupted bbolt while it held a lock
	}
	return s.db.Close()
}

// update runs f in a transaction that may write. An error of f means that the call had no
// effect. f may run again after it has failed, in another transaction.
func (s *store) update(ctx context.Context, f func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	return s.commits.write(f, s.commit)
}

// view runs f in a transaction that only reads.
func (s *store) view(ctx context.Context, f func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	s.open.RLock()
	defer s.open.RUnlock()
	return s.guard(func() error {
		tx, err := s.db.Begin(false)
		if err != nil {
			return beginError(err)
		}
		defer tx.Rollback() //nolint:errcheck // it was only read
		return withClass(f(newTxn(tx, nil)))
	})
}

// unavailable says that a call certainly had no effect.
func unavailable(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) }

// whenChanged returns a channel that is closed at the next wake of topic.
func (s *store) whenChanged(topic string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed[topic] == nil {
		s.changed[topic] = make(chan struct{})
	}
	return s.changed[topic]
}

// wake makes every member that is waiting on topic check for messages again. Every call that may
// make a message due earlier ends with a wake call.
func (s *store) wake(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.changed[topic]; c != nil {
		close(c)
		delete(s.changed, topic)
	}
}

// count adds n to the members of a group, and returns how many there are.
func (s *store) count(group uint64, n int64) int64 {
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
