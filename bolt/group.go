package bolt

import (
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// A group is a cursor into the log and its entries. It is valid within its transaction.
type group struct {
	*topic
	path                      string // topic/group
	bucket, entries, schedule *bbolt.Bucket

	identity      uint64 // of no other group, even of this name
	firstDelivery uint64 // deliveries with lower numbers were before the last ResetGroup, or of a deleted group
	cursor        uint64 // the lowest offset that was never delivered
	groupAttributes
}

// group returns a group that exists.
func (t *topic) group(name string) (*group, error) {
	b := t.groups.Bucket([]byte(name))
	if b == nil {
		return nil, fmt.Errorf("%w: there is no group %s", backend.ErrGone, name)
	}
	state := b.Get([]byte("state"))
	return &group{
		topic: t, path: t.name + "/" + name, bucket: b, entries: b.Bucket([]byte("entries")), schedule: b.Bucket([]byte("schedule")),
		identity: numberAt(state, 0), firstDelivery: numberAt(state, 1), cursor: numberAt(state, 2), groupAttributes: decodeAttributes(state[3*8:]),
	}, nil
}

// makeGroup makes a group that begins at start.
func (t *topic) makeGroup(name string, identity uint64, x groupAttributes, start backend.Start) error {
	cursor, err := t.resolveStart(start)
	if err != nil {
		return err
	}
	b, err := t.makeBucket(t.groups, name, "entries", "schedule")
	if err != nil {
		return err
	}
	g := &group{topic: t, bucket: b, identity: identity, firstDelivery: t.unique(), cursor: cursor, groupAttributes: x}
	g.save()
	return nil
}

// save stores the state of the group.
func (g *group) save() {
	state := pack(g.identity, g.firstDelivery, g.cursor)
	if traits := g.encode(); traits != nil {
		g.upgrade()
		state = append(state, traits...)
	}
	g.put(g.bucket, []byte("state"), state)
}

// deleteGroup deletes a group that exists.
func (t *topic) deleteGroup(name string) {
	g, err := t.group(name)
	if err == nil {
		g.removeAllMembers()
		err = t.groups.DeleteBucket([]byte(name))
	}
	t.wroteOrFailed(err)
}

// An entry is a message that was delivered and is not settled.
type entry struct {
	offset   uint64
	attempt  uint64 // deliveries that count
	delivery uint64 // number of the last delivery; 0: there is no such entry
	due      uint64 // moment from which it is due; 0: it is due
	held     uint64 // by the member with this number; 0: by none. Files of earlier versions have 1 for any member
}

func (g *group) entry(offset uint64) entry {
	e := entry{offset: offset}
	if v := g.entries.Get(pack(offset)); v != nil {
		e.attempt, e.delivery, e.due, e.held = numberAt(v, 0), numberAt(v, 1), numberAt(v, 2), numberAt(v, 3)
	}
	return e
}

// postpone stores e, due at the moment given.
func (g *group) postpone(e entry, due uint64) {
	g.remove(g.schedule, pack(g.entry(e.offset).due, e.offset))
	g.put(g.schedule, pack(due, e.offset), nil)
	g.put(g.entries, pack(e.offset), pack(e.attempt, e.delivery, due, e.held))
}

// settle removes e permanently.
func (g *group) settle(e entry) {
	g.remove(g.schedule, pack(e.due, e.offset))
	g.remove(g.entries, pack(e.offset))
}

// expire sets the due time of each due entry to 0, so that the schedule begins with all due entries in
// order of their offsets.
func (g *group) expire(now time.Time) {
	var passed []uint64
	c := g.schedule.Cursor()
	for k, _ := c.Seek(pack(1)); k != nil && numberAt(k, 0) <= micros(now); k, _ = c.Next() {
		passed = append(passed, numberAt(k, 1))
	}
	for _, offset := range passed {
		g.postpone(g.entry(offset), 0)
	}
}

// take delivers up to limit messages to s for a lease. It takes the due messages with the
// lowest offsets. Every entry is below the cursor, so a redelivered message goes before a
// new one.
func (g *group) take(limit int, maxBytes int64, now time.Time, s *source) (ds []backend.Delivery) {
	g.expire(now)
	var offsets []uint64
	c := g.schedule.Cursor()
	for k, _ := c.First(); k != nil && numberAt(k, 0) == 0 && len(offsets) < limit; k, _ = c.Next() {
		offsets = append(offsets, numberAt(k, 1))
	}
	for offset := g.cursor; offset < g.end() && len(offsets) < limit; offset++ {
		offsets = append(offsets, offset)
	}
	for _, offset := range offsets {
		m, _, err := g.message(offset)
		if maxBytes -= int64(m.Size()); maxBytes < 0 && len(ds) > 0 {
			break // m stays due
		}
		e := g.entry(offset)
		again := e.delivery != 0
		e.attempt, e.delivery, e.held = e.attempt+1, g.unique(), s.member
		g.postpone(e, microsAfter(now, s.config.Lease))
		ds = append(ds, backend.Delivery{Message: m, Err: err, Attempt: int(e.attempt), Redelivered: again, Token: receipt{g.path, offset, e.delivery}})
		g.cursor = max(g.cursor, offset+1)
	}
	if len(ds) > 0 {
		g.save()
	}
	return ds
}

// wait returns the time until an entry is due, or an hour if there is none.
func (g *group) wait(now time.Time) time.Duration {
	k, _ := g.schedule.Cursor().First()
	if k == nil {
		return time.Hour
	}
	return time.UnixMicro(int64(numberAt(k, 0))).Sub(now)
}

// A receipt is the Token of a delivery.
type receipt struct {
	path             string // topic/group
	offset, delivery uint64
}

// claim returns the entry of d, or the zero entry if the message is settled. If fenced is
// set, d must be the last delivery and its member must hold the message.
func (g *group) claim(d *backend.Delivery, fenced bool) (entry, error) {
	r, ok := d.Token.(receipt)
	if !ok || r.path != g.path {
		return entry{}, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	e := g.entry(r.offset)
	if r.delivery < g.firstDelivery || fenced && (e.held == 0 || e.delivery != r.delivery) {
		return entry{}, backend.ErrLeaseLost
	}
	return e, nil
}

// floor is the lowest offset that is not settled.
func (g *group) floor() uint64 {
	if k, _ := g.entries.Cursor().First(); k != nil {
		return numberAt(k, 0)
	}
	return g.cursor
}

// groupAttributes are what ResetGroup does not change in a group. Most groups have none, and then
// store none.
type groupAttributes struct {
	ephemeral bool
	pause     backend.Pause // may be over
}

func (x *groupAttributes) encode() []byte {
	if !x.ephemeral && x.pause.Since.IsZero() {
		return nil
	}
	kind, since, until := uint64(0), x.pause.Since, x.pause.Until
	if x.ephemeral {
		kind = 1
	}
	b := pack(kind, uint64(since.Unix()), uint64(since.Nanosecond()), uint64(until.Unix()), uint64(until.Nanosecond()))
	return appendText(appendText(b, x.pause.By), x.pause.Why)
}

func decodeAttributes(b []byte) (x groupAttributes) {
	if len(b) == 0 {
		return x
	}
	date := func(i int) (at time.Time) {
		if t := time.Unix(int64(numberAt(b, i)), int64(numberAt(b, i+1))); !t.IsZero() {
			at = t
		}
		return at
	}
	x.ephemeral, x.pause.Since, x.pause.Until = numberAt(b, 0) == 1, date(1), date(3)
	texts := textReader{rest: b[5*8:]}
	x.pause.By, x.pause.Why = string(texts.text()), string(texts.text())
	return x
}

// paused returns the current pause, or the zero Pause.
func (x *groupAttributes) paused(now time.Time) backend.Pause {
	if until := x.pause.Until; x.pause.Since.IsZero() || !until.IsZero() && !now.Before(until) {
		return backend.Pause{}
	}
	return x.pause
}
