package bolt

import (
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// maxMessage bounds Message.Size, because a transaction has all of it in memory.
const maxMessage = 4 << 20

// A topic is a log of messages, the IDs published with Once, and groups. It is valid
// within its transaction.
type topic struct {
	*txn
	name string

	root                     *bbolt.Bucket // has the other buckets; its sequence is the number of messages
	log, once, marks, groups *bbolt.Bucket

	settings settings
	latest   uint64    // moment of the newest message; 0: not known yet
	eviction *eviction // of this call; nil: none yet
}

// topic returns a topic that exists.
func (t *txn) topic(name string) (*topic, error) {
	b := t.topics.Bucket([]byte(name))
	if b == nil {
		return nil, fmt.Errorf("%w: there is no topic %s", backend.ErrGone, name)
	}
	part := func(name string) *bbolt.Bucket { return b.Bucket([]byte(name)) }
	log := part("log")
	log.FillPercent = 0.95 // it grows at its end, where a page that was split would stay half empty
	return &topic{
		txn: t, name: name, root: b, log: log, once: part("once"), marks: part("marks"), groups: part("groups"),
		settings: decodeSettings(b.Get([]byte("settings"))),
	}, nil
}

// makeTopic returns a topic, and makes it if it does not exist. Its first offset is greater
// than each offset of a deleted topic, because a position must not be used again. Messages of one topic
// that follow each other get the same topic.
func (t *txn) makeTopic(name string) (made *topic, err error) {
	if t.lastTopic != nil && t.lastTopic.name == name {
		return t.lastTopic, nil
	}
	defer func() { t.lastTopic = made }()
	if found, err := t.topic(name); err == nil {
		return found, nil
	}
	if _, err := t.makeBucket(t.topics, name, "log", "once", "marks", "groups", "members"); err != nil {
		return nil, err
	}
	made, err = t.topic(name)
	if err == nil {
		t.wroteOrFailed(made.log.SetSequence(t.used.Sequence()))
	}
	return made, err
}

// delete removes the topic with its groups and messages.
func (t *topic) delete() {
	t.wroteOrFailed(t.used.SetSequence(max(t.used.Sequence(), t.log.Sequence())))
	t.wroteOrFailed(t.topics.DeleteBucket([]byte(t.name)))
}

// end is the offset that the next message gets.
func (t *topic) end() uint64 { return t.log.Sequence() + 1 }

// first is the offset of the oldest message.
func (t *topic) first() uint64 {
	if k, _ := t.log.Cursor().First(); k != nil {
		return numberAt(k, 0)
	}
	return t.end()
}

// depth is the number of messages. It is a count of its own, because Remove leaves gaps.
func (t *topic) depth() uint64 { return t.root.Sequence() }

// store appends m, unless it was stored before or there is no room.
func (t *topic) store(m *backend.Message, o Options) error {
	m.Position, m.Duplicate = "", false
	now := time.Now()
	mark := []byte("id " + m.Mark()) // a key is never empty
	if m.Once {
		if v := t.once.Get(mark); v != nil && micros(now) < numberAt(v, 1) {
			m.Position, m.Duplicate = position(numberAt(v, 0)), true
			return nil
		}
	}
	switch {
	case m.Size() > maxMessage:
		return fmt.Errorf("%w: a message of %d bytes", backend.ErrTooLarge, m.Size())
	case m.Once && len(mark) > bbolt.MaxKeySize:
		return fmt.Errorf("%w: an ID of %d bytes", backend.ErrTooLarge, len(m.Mark()))
	case t.settings.MaxBytes > 0 && int64(m.Size()) > t.settings.MaxBytes:
		return fmt.Errorf("%w: a message of %d bytes, and the topic has room for %d", backend.ErrTooLarge, m.Size(), t.settings.MaxBytes)
	}
	if err := t.space.reserve(t.txn, m.Size(), o.MinFree); err != nil {
		return err
	}
	if err := t.makeRoom(m.Size(), o.MaxMessages); err != nil {
		return err
	}
	offset := t.next(t.log)
	t.put(t.log, pack(offset), encode(m, t.now(now)))
	t.next(t.root) // adds one to depth
	t.addBytes(int64(m.Size()))
	m.Position = position(offset)
	if m.Once {
		t.put(t.once, mark, pack(offset, microsAfter(now, o.OnceWindow)))
		t.put(t.marks, pack(offset), mark)
	}
	return nil
}

// now returns the moment of storing for a new message. It is not before the moment of an earlier
// message, so that the log is sorted by time, even if the clock was set back.
func (t *topic) now(clock time.Time) uint64 {
	if t.latest == 0 {
		t.latest = storedAt(t.newest())
	}
	t.latest = max(t.latest, micros(clock))
	return t.latest
}

// newest returns the record of the newest message, or nil. It does not use Cursor.Last, which
// never returns in a transaction that has emptied a log of several pages (bbolt 1.5.0).
func (t *topic) newest() []byte {
	low, high := t.first(), t.end()
	if body := t.log.Get(pack(high - 1)); body != nil {
		return body
	}
	for c := t.log.Cursor(); low+1 < high; { // the newest message was removed
		middle := low + (high-low)/2
		if k, _ := c.Seek(pack(middle)); k != nil {
			low = numberAt(k, 0)
		} else {
			high = middle
		}
	}
	return t.log.Get(pack(low))
}

// message returns the message stored at an offset.
func (t *topic) message(offset uint64) (m backend.Message, stored time.Time, err error) {
	if body := t.log.Get(pack(offset)); body != nil {
		m, stored, err = decode(body)
	} else {
		err = fmt.Errorf("%w: the message was lost", backend.ErrGone)
	}
	m.Topic, m.Position = t.name, position(offset)
	return m, stored, err
}

// removeAt removes the message at an offset, if there is one. A group that has not settled the
// message gets it with ErrGone.
func (t *topic) removeAt(offset uint64) {
	if body := t.log.Get(pack(offset)); body != nil {
		t.addBytes(-int64(size(body)))
		t.remove(t.log, pack(offset))
		t.wroteOrFailed(t.root.SetSequence(t.depth() - 1))
	}
}

// errBeyond means that a position is beyond the end of the log.
var errBeyond = fmt.Errorf("%w: the position is beyond the end", backend.ErrRefused)

// resolveStart returns the offset at which start begins.
func (t *topic) resolveStart(start backend.Start) (uint64, error) {
	if after, ok := start.After(); ok {
		offset, err := parsePosition(after)
		if err == nil && offset >= t.end() {
			return t.end(), fmt.Errorf("%w, %s", errBeyond, after)
		}
		return max(offset+1, t.first()), err
	}
	if at, ok := start.At(); ok {
		return t.offsetAt(at), nil
	}
	switch start {
	case backend.StartEarliest:
		return t.first(), nil
	case backend.StartLatest:
		return t.end(), nil
	}
	return 0, fmt.Errorf("%w: unknown start %q", backend.ErrRefused, start)
}

// offsetAt returns the offset of the first message stored at a time or later, or the end. It halves
// the log, whose offsets have gaps.
func (t *topic) offsetAt(at time.Time) uint64 {
	if at.Before(time.Unix(0, 0)) {
		return t.first()
	}
	c := t.log.Cursor()
	low, high := t.first(), t.end()
	for low < high {
		middle := low + (high-low)/2
		k, v := c.Seek(pack(middle))
		switch {
		case k == nil || storedAt(v) >= micros(at):
			high = middle
		default:
			low = numberAt(k, 0) + 1
		}
	}
	k, _ := c.Seek(pack(low))
	if k == nil {
		return t.end()
	}
	return numberAt(k, 0)
}

// floor returns the offset below which every group has settled all messages. Without groups it
// is zero.
func (t *topic) floor() (uint64, error) {
	floor, groups := t.end(), 0
	err := t.groups.ForEachBucket(func(name []byte) error {
		g, err := t.group(string(name))
		if err == nil {
			floor = min(floor, g.floor())
			groups++
		}
		return err
	})
	if groups == 0 {
		floor = 0
	}
	return floor, err
}

// trim removes messages that every group has settled and that are older than Keep. It looks at up to
// limit offsets, and returns how many.
func (t *topic) trim(now time.Time, limit int) (seen int, err error) {
	floor, err := t.floor()
	keep := t.settings.Keep
	for offset := t.first(); err == nil && offset < floor && seen < limit; offset++ {
		if keep > 0 && storedAt(t.log.Get(pack(offset))) >= micros(now.Add(-keep)) {
			break
		}
		t.removeAt(offset)
		seen++
	}
	return seen, err
}

// forgetIDs removes up to limit IDs whose window has passed, and returns how many.
func (t *topic) forgetIDs(now time.Time, limit int) (removed int) {
	for removed < limit {
		offset, mark := t.marks.Cursor().First()
		if offset == nil {
			break
		}
		v := t.once.Get(mark)
		last := v != nil && numberAt(v, 0) == numberAt(offset, 0) // the ID was not published again since
		if last && micros(now) < numberAt(v, 1) {
			break
		}
		if last {
			t.remove(t.once, mark)
		}
		t.remove(t.marks, offset)
		removed++
	}
	return removed
}

// position returns the position of an offset. Positions compare as offsets do.
func position(offset uint64) string { return fmt.Sprintf("%016x", offset) }

func parsePosition(p string) (uint64, error) {
	offset, err := strconv.ParseUint(p, 16, 64)
	if err != nil || p != position(offset) {
		return 0, fmt.Errorf("%w: %q is not a position", backend.ErrRefused, p)
	}
	return offset, nil
}
