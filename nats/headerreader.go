package nats

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// many is the most headers of one message for which memory is reserved. Each message of the
// bus has fewer headers. A message of another program may have more.
const many = 128

// otherHeaders estimates the number of headers without the ID, to reserve memory for them.
// Nearly all messages have an ID.
func otherHeaders(h natsgo.Header) int { return min(max(len(h)-1, 0), many) }

// An origin says where and when a message was stored.
type origin interface {
	stored() (stream string, sequence uint64, at time.Time)
}

// readHeader reads the headers of a stored message into m. It skips the headers of the
// server. If a header has several values, it takes the first.
//
// A message without ce-id comes from another program. Its ID is its Nats-Msg-Id, or else is
// made of its origin. If such a message or a CloudEvent has no time, it gets the time at
// which it was stored.
func readHeader(mem *slab.Slab, m *backend.Message, h natsgo.Header, o origin) {
	r := reader{Message: m, header: h, escaped: isEscaped(h)}
	m.Headers = mem.Headers(otherHeaders(h))[:0]
	for name, values := range h {
		if len(values) > 0 {
			r.read(name, values[0])
		}
	}
	if r.folded {
		byName := func(a, b backend.Header) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
		}
		slices.SortFunc(m.Headers, byName)
		m.Headers = slices.CompactFunc(m.Headers, func(a, b backend.Header) bool { return a.Name == b.Name })
	}
	if !r.identified || !r.timed && !r.escaped {
		r.adopt(o)
	}
	if len(m.Headers) == 0 {
		m.Headers = nil
	}
}

// isEscaped reports whether the values of ce-… headers are escaped.
func isEscaped(h natsgo.Header) bool {
	if h[escapedMark] != nil {
		return true
	}
	if h[idHeader] != nil { // as in each message of the bus
		return h[versionHeader] == nil
	}
	for name := range h {
		if strings.EqualFold(name, versionHeader) {
			return false
		}
	}
	return true
}

// A reader reads the headers of one message.
type reader struct {
	*backend.Message
	header  natsgo.Header
	escaped bool // the values of ce-… headers are escaped

	identified, timed bool // the message has an ID, a time
	folded            bool // the names of several headers may have become one
}

func (r *reader) read(name, value string) {
	if own, ok := strings.CutPrefix(name, foreign); ok && r.readOwn(own, value) {
		return
	}
	folded, exact := fold(name)
	if !exact {
		if r.header[folded] != nil {
			return
		}
		r.folded = true
	}
	if r.escaped && hasPrefix(name, attributes) {
		if plain, err := url.PathUnescape(value); err == nil { // another program may not know of escapes
			value = plain
		}
	}
	switch {
	case folded == idHeader:
		if !r.identified || value < r.ID {
			r.identified, r.ID = true, value
		}
	case folded == keyHeader:
		if r.Key == "" || value < r.Key {
			r.Key = value
		}
	case folded != escapedMark && !hasPrefix(folded, reserved):
		r.add(folded, value)
	}
}

// readOwn reads a header that writeHeader has stored with the prefix foreign. It returns
// false if writeHeader does not write the rest of the name or the value like this.
func (r *reader) readOwn(rest, value string) bool {
	name, err := url.PathUnescape(rest)
	if err == nil {
		value, err = url.PathUnescape(value)
	}
	if err != nil || escape(name, isToken) != rest {
		r.folded = true
		return false
	}
	if r.header[name] == nil || !isReadAs(name) {
		r.add(name, value)
	}
	return true
}

func (r *reader) add(name, value string) {
	r.timed = r.timed || name == timeHeader
	r.Headers = append(r.Headers, backend.Header{Name: name, Value: value})
}

// adopt gives the message of another program an ID and a time.
func (r *reader) adopt(o origin) {
	stream, sequence, at := o.stored()
	if !r.identified {
		r.ID = fmt.Sprintf("%s/%d/%d", stream, sequence, at.UnixNano())
		if ids := r.header[onceHeader]; len(ids) > 0 && ids[0] != "" {
			r.ID = ids[0]
		}
	}
	if !r.timed {
		r.add(timeHeader, at.UTC().Format(time.RFC3339Nano))
	}
}

// isReadAs reports whether a header stored under name, without a prefix, is read as a header
// of that name.
func isReadAs(name string) bool {
	folded, _ := fold(name)
	return folded == name && name != idHeader && name != keyHeader && name != escapedMark &&
		!strings.HasPrefix(name, foreign) && !hasPrefix(name, reserved)
}

// fold returns the name under which a stored header is read. exact is false if this is
// another name than the stored one.
func fold(name string) (folded string, exact bool) {
	folded = name
	if hasPrefix(name, attributes) {
		folded = strings.ToLower(name)
	} else if strings.EqualFold(name, contentType) {
		folded = formatHeader
	} else if i := slices.IndexFunc(anyCase, func(one string) bool { return strings.EqualFold(name, one) }); i >= 0 {
		folded = anyCase[i]
	}
	return folded, folded == name
}
