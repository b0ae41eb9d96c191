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

	identity uint64 // of no other group, even of this name
	since    uint64 // hand-outs with lower numbers were before the last ResetGroup, or of a deleted group
	cursor   uint64 // the lowest offset that was never handed out
	traits
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
		identity: number(state, 0), since: number(state, 1), cursor: number(state, 2), traits: decodeTraits(state[3*8:]),
	}, nil
}

// makeGroup makes a group that begins at start.
func (t *topic) makeGroup(name string, identity uint64, x traits, start backend.Start) error {
	cursor, err := t.begin(start)
	if err != nil {
		return err
	}
	b, err := t.makeBucket(t.groups, name, "entries", "schedule")
	if err != nil {
		return err
	}
	g := &group{topic: t, bucket: b, identity: identity, since: t.unique(), cursor: cursor, traits: x}
	g.save()
	return nil
}

// save stores the state of the group.
func (g *group) save() {
	state := pack(g.identity, g.since, g.cursor)
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
	t.note(err)
}

// An entry is a message that was handed out and is not settled.
type entry struct {
	offset  uint64
	attempt uint64 // hand-outs that count
	handout uint64 // number of the last hand-out; 0: there is no such entry
	due     uint64 // moment from which it is due; 0: it is due
	held    uint64 // by the member with this number; 0: by none. Files of earlier versions have 1 for any member
}

func (g *group) entry(offset uint64) entry {
	e := entry{offset: offset}
	if v := g.entries.Get(pack(offset)); v != nil {
		e.attempt, e.handout, e.due, e.held = number(v, 0), number(v, 1), number(v, 2), number(v, 3)
	}
	return e
}

// postpone stores e, due at the moment given.
func (g *group) postpone(e entry, due uint64) {
	g.remove(g.schedule, pack(g.entry(e.offset).due, e.offset))
	g.put(g.schedule, pack(due, e.offset), nil)
	g.put(g.entries, pack(e.offset), pack(e.attempt, e.handout, due, e.held))
}

// settle removes e for good.
func (g *group) settle(e entry) {
	g.remove(g.schedule, pack(e.due, e.offset))
	g.remove(g.entries, pack(e.offset))
}

// expire gives each due entry the moment 0. So the schedule begins with all due entries,
// by offset.
func (g *group) expire(now time.Time) {
	var passed []uint64
	c := g.schedule.Cursor()
	for k, _ := c.Seek(pack(1)); k != nil && number(k, 0) <= moment(now); k, _ = c.Next() {
		passed = append(passed, number(k, 1))
	}
	for _, offset := range passed {
		g.postpone(g.entry(offset), 0)
	}
}

// take hands out up to limit messages to s for a lease. It takes the due messages with the
// lowest offsets. Every entry is below the cursor, so a redelivered message goes before a
// new one.
func (g *group) take(limit int, maxBytes int64, now time.Time, s *source) (ds []backend.Delivery) {
	g.expire(now)
	var offsets []uint64
	c := g.schedule.Cursor()
	for k, _ := c.First(); k != nil && number(k, 0) == 0 && len(offsets) < limit; k, _ = c.Next() {
		offsets = append(offsets, number(k, 1))
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
		again := e.handout != 0
		e.attempt, e.handout, e.held = e.attempt+1, g.unique(), s.member
		g.postpone(e, after(now, s.config.Lease))
		ds = append(ds, backend.Delivery{Message: m, Err: err, Attempt: int(e.attempt), Redelivered: again, Token: receipt{g.path, offset, e.handout}})
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
	return time.UnixMicro(int64(number(k, 0))).Sub(now)
}

// A receipt is the Token of a delivery.
type receipt struct {
	path            string // topic/group
	offset, handout uint64
}

// claim returns the entry of d, or the zero entry if the message is settled. If fenced is
// set, d must be the last hand-out and its member must hold the message.
func (g *group) claim(d *backend.Delivery, fenced bool) (entry, error) {
	r, ok := d.Token.(receipt)
	if !ok || r.path != g.path {
		return entry{}, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)
	}
	e := g.entry(r.offset)
	if r.handout < g.since || fenced && (e.held == 0 || e.handout != r.handout) {
		return entry{}, backend.ErrLeaseLost
	}
	return e, nil
}

// floor is the lowest offset that is not settled.
func (g *group) floor() uint64 {
	if k, _ := g.entries.Cursor().First(); k != nil {
		return number(k, 0)
	}
	return g.cursor
}
