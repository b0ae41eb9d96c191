package inmemory

import (
	"bytes"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

const (
	pageSize = 128      // messages
	large    = 4 << 10  // payloads that are larger are kept, and handed out, on their own
	arena    = 64 << 10 // bytes of a kind that share memory, and that an unused page keeps
)

// A page has messages of neighbouring offsets. But for large payloads there is no
// pointer in it: a long log costs the garbage collector next to nothing, and what
// is stored needs no write barrier. What is read of it is copied, many messages at
// a time; so a page that was forgotten is used again, for any topic.
type page struct {
	positions string // of all its offsets
	first     uint64 // the lowest of these that is in the log
	records   [pageSize]record
	bodies
}

// Bodies are what messages are made of, one after another.
type bodies struct {
	payloads []byte
	texts    []byte   // of each message ID, key, and name and value of each header
	lengths  []int    // of these
	large    [][]byte // payloads
}

// A record says where a message ends: the next begins there.
type record struct {
	stored moment
	end    place
}

// A place is between two messages of a page.
type place struct{ payload, text, length, large int }

// near reports whether what is between two places is no more than an arena of each
// kind: a receiver that keeps a part of it keeps it all.
func (p place) near(to place) bool {
	const header = 32 / 2 // bytes of one of its two lengths
	return max(to.payload-p.payload, to.text-p.text, (to.length-p.length)*header) <= arena
}

// since is p as counted from another.
func (p place) since(from place) place {
	return place{p.payload - from.payload, p.text - from.text, p.length - from.length, p.large - from.large}
}

func (p *page) at(offset uint64) *record { return &p.records[offset%pageSize] }

// begin is where the message at offset begins.
func (p *page) begin(offset uint64) place {
	if offset == p.first {
		return place{}
	}
	return p.at(offset - 1).end
}

// start makes p, which is empty, the page of messages from offset on, with room
// for as much as was used by another.
func (p *page) start(offset uint64, used place) {
	p.positions, p.first = positions(offset-offset%pageSize), offset
	p.payloads = room(p.payloads, min(used.payload, arena))
	p.texts = room(p.texts, min(used.text, arena))
	p.lengths = room(p.lengths, min(used.length, arena/8))
}

// room returns b, which is empty, with room for n; but with none of its own memory
// if that is much more: a page that does not fill up would keep it.
func room[T any](b []T, n int) []T {
	if cap(b) > 4*n {
		b = nil
	}
	return slices.Grow(b, n)
}

// end makes p ready to be another page, unless it has become too large to be kept.
func (p *page) end() (ready bool) {
	p.positions = ""
	p.payloads, p.texts, p.lengths, p.large = p.payloads[:0], p.texts[:0], p.lengths[:0], p.large[:0]
	return max(cap(p.payloads), cap(p.texts), 8*cap(p.lengths)) <= arena
}

// shrink lets go of the memory of what is before first, and was forgotten. What is
// before next is kept.
func (p *page) shrink(first, next uint64) {
	from := p.begin(first)
	for offset := first; offset < next; offset++ {
		r := p.at(offset)
		r.end = r.end.since(from)
	}
	p.first, p.bodies = first, bodies{ // slices.Clone of nothing would keep all
		payloads: append([]byte(nil), p.payloads[from.payload:]...),
		texts:    append([]byte(nil), p.texts[from.text:]...),
		lengths:  append([]int(nil), p.lengths[from.length:]...),
		large:    append([][]byte(nil), p.large[from.large:]...),
	}
}

// position returns the position of an offset.
func (p *page) position(offset uint64) string {
	at := offset % pageSize * positionLen
	return p.positions[at : at+positionLen]
}

// store makes a copy of m what is at offset.
func (p *page) store(offset uint64, m *backend.Message, now moment) {
	if len(m.Payload) > large {
		p.large = append(p.large, bytes.Clone(m.Payload))
	} else {
		p.payloads = append(p.payloads, m.Payload...)
	}
	p.write(m.ID)
	p.write(m.Key)
	for i := range m.Headers {
		p.write(m.Headers[i].Name)
		p.write(m.Headers[i].Value)
	}
	*p.at(offset) = record{now, p.place()}
}

func (b *bodies) place() place {
	return place{len(b.payloads), len(b.texts), len(b.lengths), len(b.large)}
}

func (b *bodies) write(text string) {
	b.texts = append(b.texts, text...)
	b.lengths = append(b.lengths, len(text))
}

// read is as log.read, and stays within the page. What p has written is in b.
func (p *page) read(b *bodies, offset uint64, n int, message func(i int) *backend.Message) int {
	records := p.records[offset%pageSize:]
	records = records[:min(n, len(records))]
	from := p.begin(offset)
	for i := range records {
		if i > 0 && !from.near(records[i].end) {
			records = records[:i]
			break
		}
	}
	to := records[len(records)-1].end
	payloads := append([]byte(nil), b.payloads[from.payload:to.payload]...)
	texts := string(b.texts[from.text:to.text])
	lengths := b.lengths[from.length:to.length]
	var headers backend.Headers
	if n := len(lengths)/2 - len(records); n > 0 {
		headers = make(backend.Headers, n)
	}
	text := func() string {
		t := texts[:lengths[0]]
		texts, lengths = texts[len(t):], lengths[1:]
		return t
	}
	begin := from
	for i := range records {
		end, m := records[i].end, message(i)
		m.Position = p.position(offset + uint64(i))
		m.ID, m.Key = text(), text()
		if n := (end.length - begin.length) / 2; n > 1 {
			m.Headers = headers[: n-1 : n-1]
			headers = headers[n-1:]
			for j := range m.Headers {
				m.Headers[j] = backend.Header{Name: text(), Value: text()}
			}
		}
		switch n := end.payload - begin.payload; {
		case n > 0:
			m.Payload = payloads[:n:n]
			payloads = payloads[n:]
		case end.large > begin.large:
			m.Payload = b.large[begin.large]
		}
		begin = end
	}
	return len(records)
}

// forget lets go of what is at offset, and returns its size.
func (p *page) forget(offset uint64) int {
	begin, end := p.begin(offset), p.at(offset).end
	size := end.payload - begin.payload + end.text - begin.text
	if end.large > begin.large {
		size += len(p.large[begin.large])
		p.large[begin.large] = nil
	}
	return size
}

// own gives m a payload of its own, if that is a large one.
func own(m *backend.Message) {
	if len(m.Payload) > large {
		m.Payload = slices.Clone(m.Payload)
	}
}
