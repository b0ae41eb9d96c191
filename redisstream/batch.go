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
	own     bool   // the value has memory of its own
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
		for range p.array() {
			e := entry{attempt: 1}
			if !p.own(&e) {
				p.arrayOf(2)
				e.id = p.bulk()
				e.readFields(p)
			}
			b.entries = append(b.entries, e)
		}
	}
}

// own reads an entry in one go if it is as ours nearly all are. Otherwise it
// leaves it.
func (p *parser) own(e *entry) bool {
	id, value, size := ownEntry(p.rest)
	if size == 0 || len(id) == 0 {
		return false
	}
	e.id, e.value, p.rest = id, value, p.rest[size:]
	return true
}

// ownEntry returns the entry that b begins with, if it is whole and has one field,
// of our name, whose value is not large. Otherwise the size is 0.
func ownEntry(b []byte) (id, value []byte, size int) {
	const pair, name = "*2\r\n", "*2\r\n$5\r\n" + field + "\r\n"
	id, rest, ok := strip(b, pair)
	if !ok {
		return nil, nil, 0
	}
	value, rest, ok = strip(rest, name)
	if !ok {
		return nil, nil, 0
	}
	return id, value, len(b) - len(rest)
}

// strip returns the string behind a prefix, and what follows, if it is so and the
// string is neither nil nor large.
func strip(b []byte, prefix string) (text, rest []byte, ok bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, nil, false
	}
	b = b[len(prefix):]
	n, size := length(b)
	if size == 0 || b[0] != '$' || n > inline || len(b) < size+n+2 || b[size+n] != '\r' || b[size+n+1] != '\n' {
		return nil, nil, false
	}
	return b[size : size+n : size+n], b[size+n+2:], true
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
	switch {
	case n < 0:
		e.err = errBodyGone
		return
	case n == 2:
		name := p.bulk()
		e.value, e.own = p.text()
		if string(name) == field {
			return
		}
		e.own = false
		e.value = fmt.Appendf(nil, "%s=%s\n", name, e.value)
	default:
		for range n / 2 {
			e.value = fmt.Appendf(e.value, "%s=%s\n", p.bulk(), p.bulk())
		}
		if n%2 == 1 {
			p.skip()
		}
	}
	e.err = errUnreadable
}

// deliveries appends the entries to ds, as deliveries to s.
func (b *batch) deliveries(s *source, ds []backend.Delivery) []backend.Delivery {
	if len(b.entries) == 0 {
		return ds
	}
	mem := b.memory()
	b.weigh()
	had := len(ds)
	ds = b.loan.Lend(b.loan.Room(ds, len(b.entries))[:had+len(b.entries)])
	receipts := make([]receipt, len(b.entries))
	var position [positionLen]byte
	for i := range b.entries {
		e, d := &b.entries[i], &ds[had+i]
		receipts[i].source, receipts[i].settled = s, e.settled
		receipts[i].attempt.Store(int64(e.attempt))
		*d = backend.Delivery{Attempt: e.attempt, Token: &receipts[i]}
		d.Topic, d.Position = s.config.Topic, mem.Text(appendPosition(position[:0], e.id))
		d.Err = e.read(&mem, &d.Message, len(b.entries)-i)
	}
	clear(b.entries) // they keep what they lie in alive
	b.reply = reply{}
	return ds
}

// memory returns memory for what there is in the entries.
func (b *batch) memory() (mem slab.Slab) {
	for i := range b.entries {
		e := &b.entries[i]
		text := len(e.value)
		if e.own {
			text = endOfHead(e.value)
		}
		mem.Expect(0, 0, positionLen+text)
	}
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

func (b *batch) weigh() {
	b.weight = 0
	for i := range b.entries {
		b.weight += len(b.entries[i].value)
	}
	b.weight /= len(b.entries)
}

// read reads the entry, one of so many that are still to be read, into m. What it
// cannot read is the payload of m. A large value stays where it was read to, but for
// its attributes, and any other is copied as it is: of it the head is text, and the
// payload is bytes.
func (e *entry) read(mem *slab.Slab, m *backend.Message, left int) error {
	value, text := e.value, ""
	if e.own {
		text = mem.Text(value[:endOfHead(value)])
	} else {
		text, value = mem.Both(value)
	}
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
