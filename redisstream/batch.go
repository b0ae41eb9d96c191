package redisstream

import (
	"fmt"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A receipt is what a delivery's Token points to.
type receipt struct {
	source  *source
	attempt atomic.Int64 // by which scripts know it, beside the holder; noReceipt if by none
	settled bool         // the script that handed it out found no body, and has removed it
}

// noReceipt is an attempt that the server does not count to.
const noReceipt = -1

// A batch is what one read brought. Its memory is used again, that of the
// deliveries too, but for what they refer to.
type batch struct {
	reply   reply
	entries []entry
	weight  int       // of an entry, in bytes: the mean of the last read that brought any
	loan    slab.Loan // to who receives
}

// An entry lies in the reply.
type entry struct {
	id      []byte
	attempt int
	value   []byte // of the field, if that is ours
	err     error  // why there is no message
	settled bool   // see receipt
}

var errBodyGone = fmt.Errorf("%w: the stream entry was deleted or trimmed", backend.ErrGone)

// readNew reads the reply of XREADGROUP: {{stream, {{id, fields}, …}}}, or nil.
func (b *batch) readNew(p *parser) {
	b.entries = b.entries[:0]
	for range p.array() {
		p.arrayOf(2)
		p.bulk()
		b.readRange(p)
	}
}

// readRange appends the reply of XRANGE: {{id, fields}, …}.
func (b *batch) readRange(p *parser) {
	for range p.array() {
		p.arrayOf(2)
		e := entry{id: p.bulk(), attempt: 1}
		e.readFields(p)
		b.entries = append(b.entries, e)
	}
}

// readTaken reads what the script returns: {{id, attempt, fields}, …}.
func (b *batch) readTaken(p *parser) {
	b.entries = b.entries[:0]
	for range p.array() {
		p.arrayOf(3)
		e := entry{id: p.bulk(), attempt: p.integer()}
		e.readFields(p)
		e.settled = e.err == errBodyGone //nolint:errorlint // it is not wrapped
		b.entries = append(b.entries, e)
	}
}

// readFields reads the fields of an entry. Where they are not one of ours they
// are kept as lines of name=value.
func (e *entry) readFields(p *parser) {
	n := p.array()
	if n < 0 {
		e.err = errBodyGone
		return
	}
	for at := 0; at+1 < n && p.err == nil; at += 2 {
		name, value := p.bulk(), p.bulk()
		if n == 2 && string(name) == field {
			e.value = value
			return
		}
		e.value = fmt.Appendf(e.value, "%s=%s\n", name, value)
	}
	if n%2 == 1 {
		p.bulk()
	}
	e.err = errUnreadable
}

// deliveries appends the entries to ds, as deliveries to s.
func (b *batch) deliveries(s *source, ds []backend.Delivery) []backend.Delivery {
	if len(b.entries) == 0 {
		return ds
	}
	mem := b.memory()
	had := len(ds)
	ds = b.loan.Lend(b.loan.Room(ds, len(b.entries))[:had+len(b.entries)])
	receipts := make([]receipt, len(b.entries))
	for i := range b.entries {
		e, d := &b.entries[i], &ds[had+i]
		receipts[i].source, receipts[i].settled = s, e.settled
		receipts[i].attempt.Store(int64(e.attempt))
		*d = backend.Delivery{Attempt: e.attempt, Token: &receipts[i]}
		d.Err = e.read(&mem, &d.Message, s.config.Topic, len(b.entries)-i)
	}
	return ds
}

// messages returns the entries as messages.
func (b *batch) messages(topic string) []backend.Message {
	mem := b.memory()
	ms := make([]backend.Message, len(b.entries))
	for i := range b.entries {
		_ = b.entries[i].read(&mem, &ms[i], topic, len(ms)-i) // then it has the raw bytes
	}
	return ms
}

// memory returns memory for what there is in the entries, of which there are some.
func (b *batch) memory() (mem slab.Slab) {
	b.weight = 0
	for i := range b.entries {
		b.weight += len(b.entries[i].value)
		mem.Expect(0, 0, positionLen+len(b.entries[i].value))
	}
	b.weight /= max(len(b.entries), 1)
	return mem
}

const (
	replyBytes = 512 << 10 // what new entries of one reply are to have
	leastRead  = 8         // entries of it, however large
)

// enough is how many new entries to ask for: redis-server makes a reply as a whole before it
// sends any of it, and serves nobody meanwhile.
func (b *batch) enough(limit int) int {
	return min(limit, max(leastRead, replyBytes/max(b.weight, 1)))
}

// read reads the entry, one of so many that are still to be read, into m. What it
// cannot read is the payload of m. Head and payload are copied together.
func (e *entry) read(mem *slab.Slab, m *backend.Message, topic string, left int) error {
	var position [positionLen]byte
	m.Topic, m.Position = topic, mem.Text(appendPosition(position[:0], e.id))
	text, value := mem.Both(e.value)
	if e.err == nil {
		var head int
		if head, e.err = readHead(mem, m, text, left); e.err == nil {
			m.Payload = value[head:]
			return nil
		}
		m.ID, m.Key, m.Headers = "", "", nil
	}
	m.Payload = value
	return e.err
}
