package nats

import (
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// An inbox is where arrives what the server sends to one receiver: by a
// subscription of the client library, or, where a tap takes it off the connection
// before that, in a box. One goroutine at a time uses it.
type inbox struct {
	prefix string // what its subjects begin with
	tap    *tap   // nil if the connection has none
	sub    *natsgo.Subscription
	msgs   chan *natsgo.Msg // of the client library
	box    *box             // of the tap

	waiting []arrival // here and not taken yet: a part of memory
	memory  []arrival
}

// An arrival is one message. Its texts and its data are its receiver's to keep.
type arrival struct {
	subject string // unless it has a reply
	reply   string
	text    string        // its headers, as they came, or
	header  natsgo.Header // as the client library has read them
	data    []byte
}

// handful is how many are taken together from the client library, where the tap has
// taken none.
const handful = 64

// open begins to listen. The client library drops what is more than room.
func (in *inbox) open(conn *natsgo.Conn, t *tap, prefix string, room int) error {
	if t.isConnecting() {
		return errNotConnected
	}
	in.prefix, in.tap, in.msgs, in.box = prefix, t, make(chan *natsgo.Msg, room), newBox()
	in.waiting = nil
	t.add(prefix, in.box)
	return in.subscribe(conn)
}

func (in *inbox) subscribe(conn *natsgo.Conn) (err error) {
	in.sub, err = conn.ChanSubscribe(in.prefix+"*", in.msgs)
	return err
}

// unsubscribe leaves it to the server not to send any more.
func (in *inbox) unsubscribe() {
	in.tap.mute(in.prefix)
	if sub := in.sub; sub != nil {
		in.tap.leave(func() { _ = sub.Unsubscribe() }) // the connection may be closed
		in.sub = nil
	}
}

// outlet is where requests may go straight whose answers come to the inbox; nil if
// nowhere.
func (in *inbox) outlet() *outlet {
	if o := in.box.outlet.Load(); o != nil && o.isOpen() {
		return o
	}
	return nil
}

// close ends listening.
func (in *inbox) close() {
	in.unsubscribe()
	in.tap.remove(in.prefix)
}

// arrived returns what is here. It is valid until all of it is taken and arrived
// called once more. Where nothing is here, something of msgs or box.some says when
// to look again.
func (in *inbox) arrived() []arrival {
	if len(in.waiting) > 0 {
		return in.waiting
	}
	clear(in.memory)
	in.memory = in.box.swap(in.memory[:0])
	for len(in.memory) < handful {
		select {
		case m := <-in.msgs:
			in.put(m)
			continue
		default:
		}
		break
	}
	in.waiting = in.memory
	return in.waiting
}

// took notes that the first n of what is here are taken.
func (in *inbox) took(n int) { in.waiting = in.waiting[n:] }

// put adds what was received from msgs, when nothing was here.
func (in *inbox) put(m *natsgo.Msg) {
	in.memory = append(in.memory, arrival{m.Subject, m.Reply, "", m.Header, m.Data})
	in.waiting = in.memory
}

// empty forgets what has arrived.
func (in *inbox) empty() {
	for len(in.arrived()) > 0 {
		in.waiting = nil
	}
}

// status is what the server says in place of a message.
func (a *arrival) status() (code, description string) {
	if a.header != nil {
		return a.header.Get("Status"), a.header.Get("Description")
	}
	line, _, _ := strings.Cut(a.text, "\r\n")
	code, description, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, headersBegin)), " ")
	return code, strings.TrimSpace(description)
}

// headersBegin is the version that headers begin with.
const headersBegin = "NATS/1.0"

// isUnserved reports whether it says that nobody listens on the subject of a
// request.
func (a *arrival) isUnserved() bool {
	if len(a.data) > 0 || a.header == nil && a.text == "" {
		return false
	}
	code, _ := a.status()
	return code == "503"
}

// headers is how many it has, at most.
func (a *arrival) headers() int { return len(a.header) + linesOf(a.text) }

func (a *arrival) readHeaders(mem *slab.Slab, m *backend.Message) error {
	if a.text != "" {
		return readText(mem, m, a.text)
	}
	return readHeader(mem, m, a.header)
}
