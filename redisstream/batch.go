package redisstream

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A receipt is the Token of a delivery.
type receipt struct {
	*handOut
	count   int         // the delivery count on the server when it was delivered; fenced scripts compare it
	settled bool        // take.lua found that the entry has no body, and acknowledged it
	unsure  atomic.Bool // an Ack of the delivery had no answer
}

// A handOut has the fields that are equal in all receipts of one read.
type handOut struct {
	source *source
	until  time.Time // before this moment no other member receives the deliveries
}

// countBase splits the delivery count of the server. The remainder is the attempt. The
// quotient is the number of the run of take.lua that made the delivery
// (lua/with/count.lua).
const countBase = 1_000_000

// A batch has the memory of one read, which the next read uses again. The strings of the
// deliveries are in other memory.
type batch struct {
	reply  reply
	weight int       // mean bytes of an entry in the last reply that had entries
	loan   slab.Loan // the deliveries that are lent to the caller of Receive
}

var errBodyGone = fmt.Errorf("%w: the stream entry was deleted or trimmed", backend.ErrGone)

// read reads the reply of XREADGROUP: {{stream, {{id, fields}, …}}}, or nil if there is no
// new message.
func (b *batch) read(p *parser, s *source) (ds []backend.Delivery) {
	switch n := p.array(); {
	case n > 1:
		p.fail("one stream")
	case n == 1:
		p.arrayOf(2)
		p.bulk()
		ds = b.deliveries(p, s, false)
	}
	return ds
}

// deliveries reads entries: {{id, count, fields}, …} if counted, which is the form of
// take.lua, or else {{id, fields}, …}.
func (b *batch) deliveries(p *parser, s *source, counted bool) []backend.Delivery {
	n, size := max(p.array(), 0), len(p.rest)
	if n == 0 {
		return nil
	}
	var mem slab.Slab
	mem.Expect(0, 0, size)
	ds := b.loan.Lend(b.loan.Room(nil, n)[:n])
	receipts, from := make([]receipt, n), &handOut{s, s.asked.Add(s.config.Lease)}
	entries := entries{s.config.Topic, s.options}
	for i := range ds {
		r, d := &receipts[i], &ds[i]
		*d = backend.Delivery{Token: r, Redelivered: counted}
		r.handOut = from
		r.count, d.Err = entries.read(p, &mem, &d.Message, counted, n-i)
		d.Attempt = r.count % countBase
		r.settled = counted && d.Err == errBodyGone //nolint:errorlint // it is not wrapped
	}
	b.weight = (size - len(p.rest)) / n
	return ds
}

// entries reads the entries of one topic.
type entries struct {
	topic   string
	options TopicOptions
}

// read reads one entry into m: {id, count, fields} if counted, otherwise {id, fields}. left
// is the number of entries that are not read yet, with this one; it sizes mem. If the entry cannot be decoded, its raw bytes
// become the payload of m.
func (e *entries) read(p *parser, mem *slab.Slab, m *backend.Message, counted bool, left int) (count int, err error) {
	if count = 1; counted {
		p.arrayOf(3)
	} else {
		p.arrayOf(2)
	}
	id := p.bulk()
	var position [positionLen]byte
	m.Topic, m.Position = e.topic, mem.Text(appendPosition(position[:0], id))
	if counted {
		count = p.integer()
	}
	fields := p.rest
	value, err := readFields(p)
	if err = readValue(mem, m, value, err, left); err == errUnreadable && e.options.Flat && p.err == nil { //nolint:errorlint // it is not wrapped
		readFlat(&parser{rest: fields}, m, id, e.options)
		err = nil
	}
	return count, err
}

// readFields reads the fields of an entry. If the entry has one field, named "event", value
// is its value. For any other entry readFields returns errUnreadable, and value has the
// fields as lines of name=value.
func readFields(p *parser) (value []byte, err error) {
	n := p.array()
	if n < 0 {
		return nil, errBodyGone
	}
	for at := 0; at+1 < n && p.err == nil; at += 2 {
		name, text := p.bulk(), p.bulk()
		if n == 2 && string(name) == field {
			return text, nil
		}
		value = fmt.Appendf(value, "%s=%s\n", name, text)
	}
	if n%2 == 1 {
		p.bulk()
	}
	return value, errUnreadable
}

// readValue decodes the value of an entry into m. If err is set, it only copies the value
// into the payload of m, and returns err.
func readValue(mem *slab.Slab, m *backend.Message, value []byte, err error, left int) error {
	text, own := mem.Both(value)
	head := 0
	if err == nil {
		head, err = readHead(mem, m, text, left)
	}
	if err != nil {
		m.ID, m.Key, m.Headers = "", "", nil
	}
	m.Payload = own[head:]
	return err
}

const (
	replyBytes = 512 << 10 // wanted size in bytes of one reply with new entries
	leastRead  = 8         // a read asks for 8 entries at least, even if entries are large
)

// enough returns the number of new entries to ask for, limit at most. redis-server makes
// the whole reply before it sends any part, and serves no other client meanwhile.
func (b *batch) enough(limit int) int {
	return min(limit, max(leastRead, replyBytes/max(b.weight, 1)))
}
