package bolt

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// settings are the settings of a topic. The bytes of its messages are counted only while MaxBytes
// is set, so that other topics need not store a count.
type settings struct {
	backend.TopicSettings
	bytes int64 // Message.Size of all messages together
}

func (s settings) encode() []byte {
	return pack(uint64(s.Keep), uint64(s.MaxMessages), uint64(s.MaxBytes), uint64(s.bytes))
}

func decodeSettings(b []byte) (s settings) {
	if b != nil {
		s.Keep, s.MaxMessages, s.MaxBytes = time.Duration(numberAt(b, 0)), int64(numberAt(b, 1)), int64(numberAt(b, 2))
		s.bytes = int64(numberAt(b, 3))
	}
	return s
}

// Declare implements [backend.Declarer].
func (b *Backend) Declare(ctx context.Context, name string, d backend.Declaration) (s backend.TopicSettings, err error) {
	if err := b.Limits().Settings.Check(d.Settings); err != nil {
		return s, failed("declare "+name, err)
	}
	err = b.update(ctx, "declare "+name, func(t *txn) error {
		topic, err := t.makeTopic(name)
		if err != nil {
			return err
		}
		if d.Replace || topic.settings.TopicSettings == (backend.TopicSettings{}) {
			topic.applySettings(d.Settings)
		}
		s = topic.settings.TopicSettings
		return nil
	})
	if err != nil {
		return backend.TopicSettings{}, err
	}
	return s, nil
}

// applySettings stores the settings of the topic.
func (t *topic) applySettings(s backend.TopicSettings) {
	old := t.settings
	if s == old.TopicSettings {
		return
	}
	t.settings.TopicSettings = s
	switch {
	case s == (backend.TopicSettings{}):
		t.settings.bytes = 0
		t.remove(t.root, []byte("settings"))
		return
	case s.MaxBytes == 0:
		t.settings.bytes = 0
	case old.MaxBytes == 0:
		t.wroteOrFailed(t.log.ForEach(func(_, body []byte) error {
			t.settings.bytes += int64(size(body))
			return nil
		}))
	}
	t.upgrade()
	t.put(t.root, []byte("settings"), t.settings.encode())
}

// addBytes adds n to the bytes of the topic, if they are counted.
func (t *topic) addBytes(n int64) {
	if t.settings.MaxBytes > 0 {
		t.settings.bytes += n
		t.put(t.root, []byte("settings"), t.settings.encode())
	}
}

// checkFull returns ErrFull if a message of size bytes would exceed a bound of the topic. The backend
// bounds each topic to limit messages.
func (t *topic) checkFull(size, limit int) error {
	if n := t.settings.MaxMessages; n > 0 {
		limit = int(min(n, int64(limit)))
	}
	switch {
	case t.depth() >= uint64(limit):
		return fmt.Errorf("%w: the topic has %d messages, of at most %d", backend.ErrFull, t.depth(), limit)
	case t.settings.MaxBytes > 0 && t.settings.bytes+int64(size) > t.settings.MaxBytes:
		return fmt.Errorf("%w: the topic has %d bytes, of at most %d", backend.ErrFull, t.settings.bytes, t.settings.MaxBytes)
	}
	return nil
}

// maxEvicted bounds how many messages one call of Publish removes. It is the number of the smallest
// usual messages that make room for the largest message.
const maxEvicted = 1 << 16

// makeRoom makes room for a message of size bytes by removing messages that every group has
// settled, the oldest first. If that is not enough, it returns ErrFull.
func (t *topic) makeRoom(size, limit int) error {
	for {
		err := t.checkFull(size, limit)
		if err == nil {
			return nil
		}
		if evicted, failure := t.evict(); failure != nil {
			return failure
		} else if !evicted {
			return err
		}
	}
}

// An eviction is the state of making room in one call. It remembers how far the call has come, because a
// cursor in a transaction passes each page that the transaction has emptied.
type eviction struct {
	floor uint64 // every group has settled the messages below
	next  uint64 // no message below is left
	count int
}

// evict removes the oldest message if every group has settled it, and reports whether it did.
func (t *topic) evict() (bool, error) {
	if t.eviction == nil {
		floor, err := t.floor()
		if err != nil {
			return false, err
		}
		t.eviction = &eviction{floor: floor}
	}
	e := t.eviction
	k, _ := t.log.Cursor().Seek(pack(e.next))
	if k == nil || numberAt(k, 0) >= e.floor || e.count == maxEvicted {
		return false, nil
	}
	e.next = numberAt(k, 0) + 1
	e.count++
	t.removeAt(e.next - 1)
	return true, nil
}
