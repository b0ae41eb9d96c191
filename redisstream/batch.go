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
}

// noReceipt is an attempt that the server does not count to.
const noReceipt = -1

// A batch is what one read brought. Its memory is used again, that of the
// deliveries too, but for what they refer to.
type batch struct {
	reply   reply
	entries []entry
	loan    slab.Loan // to who receives
}

// An entry lies in the reply.
type entry struct {
	id      []byte
	attempt int
	value   []byte // of the field, if that is ours
	own     bool   // the value has memory of its own
	err     error  // why there is no message

	head, payload []byte // of the value
	headers       int
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

// own reads an entry in one go if it is as ours nearly all are: one field, of that
// name, whose value is not large. Otherwise it leaves it.
func (p *parser) own(e *entry) bool {
	const pair, name = "*2\r\n", "*2\r\n$5\r\n" + field + "\r\n"
	id, rest, ok := strip(p.rest, pair)
	if !ok {
		return false
	}
	value, rest, ok := strip(rest, name)
	if !ok || len(id) == 0 {
		return false
	}
	e.id, e.value, p.rest = id, value, rest
	return true
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

// deliveries returns the entries as deliveries to s, or nil for none.
func (b *batch) deliveries(s *source) []backend.Delivery {
	if len(b.entries) == 0 {
		return nil
	}
	var mem slab.Slab
	for i := range b.entries {
		b.entries[i].expect(&mem)
	}
	ds := b.loan.Lend(b.loan.Take(len(b.entries))[:len(b.entries)])
	receipts := make([]receipt, len(b.entries))
	var position [positionLen]byte
	for i := range b.entries {
		e, d := &b.entries[i], &ds[i]
		receipts[i].source = s
		receipts[i].attempt.Store(int64(e.attempt))
		*d = backend.Delivery{Attempt: e.attempt, Token: &receipts[i]}
		d.Topic, d.Position = s.config.Topic, mem.Text(appendPosition(position[:0], e.id))
		d.Err = e.read(&mem, &d.Message)
	}
	clear(b.entries) // they keep what they lie in alive
	b.reply = reply{}
	return ds
}

// expect announces to mem what will be taken of it.
func (e *entry) expect(mem *slab.Slab) {
	mem.Expect(0, 0, positionLen)
	if e.err == nil {
		e.head, e.payload, e.headers, e.err = splitEntry(e.value)
	}
	switch {
	case e.err != nil:
		mem.Expect(len(e.value), 0, 0)
	case e.own:
		mem.Expect(0, e.headers, len(e.head))
	default:
		mem.Expect(len(e.payload), e.headers, len(e.head))
	}
}

// read reads the entry into m. What it cannot read is the payload of m. A large
// payload stays where it was read to: nothing else is there but its attributes.
func (e *entry) read(mem *slab.Slab, m *backend.Message) error {
	if e.err == nil {
		if e.err = readHead(mem, m, e.head, e.headers); e.err == nil {
			if m.Payload = e.payload; !e.own {
				m.Payload = mem.Payload(e.payload)
			}
			return nil
		}
		m.ID, m.Key, m.Headers = "", "", nil
	}
	m.Payload = mem.Payload(e.value)
	return e.err
}
