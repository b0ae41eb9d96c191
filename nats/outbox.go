package nats

import (
	"context"
	"errors"
	"net"
	"strconv"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// An outbox is what one call says to the server: all of it together, straight to a
// tapped connection, when it is sent; or, where there is none that knows the inbox
// for the answers, each by the client library, at once.
type outbox struct {
	conn     *natsgo.Conn
	straight bool    // or not at all: the client library may hold up a call
	to       *outlet // nil: the client library
	before   error   // the last of the connection when the call began

	// For an outlet.
	frames  []byte // all but large data
	headers []byte // of one message
	large   []stretch
	apart   int   // bytes of large data
	ends    []int // of operations
	pieces  net.Buffers

	// For the client library: one message, and the next again.
	message natsgo.Msg
	values  []string
}

// A stretch is data that is not copied: it goes behind so many bytes of the frames.
type stretch struct {
	at   int
	data []byte
}

const (
	outboxKeeps  = 1 << 20 // how much memory a call leaves to the next
	outboxCopies = 4 << 10 // the length of data up to which it is copied
)

func newOutbox(conn *natsgo.Conn) outbox {
	return outbox{conn: conn, message: natsgo.Msg{Header: natsgo.Header{}}}
}

// begin begins a call whose answers come to an inbox. An error says that there is
// no connection.
func (o *outbox) begin(answers *inbox) error {
	o.to = answers.outlet()
	if o.to == nil && (o.straight || answers.tap.isConnecting() || !o.conn.IsConnected()) {
		return errNotConnected
	}
	o.before = o.refused()
	o.frames, o.ends, o.apart = o.frames[:0], o.ends[:0], 0
	return nil
}

// refused is the last error of the connection.
func (o *outbox) refused() error {
	if o.to != nil {
		return o.to.refused()
	}
	return o.conn.LastError()
}

// violation returns what the server has said since the call began of something that
// it does not permit.
func (o *outbox) violation() error {
	if err := o.refused(); err != o.before && errors.Is(err, natsgo.ErrPermissionViolation) { //nolint:errorlint // the same one, not one like it
		return err
	}
	return nil
}

// maxPayload is how large a message with its headers may be.
func (o *outbox) maxPayload() int {
	if o.to != nil {
		return int(o.to.payload.Load())
	}
	return int(o.conn.MaxPayload())
}

// lost is closed when what was sent straight is not going to be answered.
func (o *outbox) lost() <-chan struct{} {
	if o.to == nil {
		return nil
	}
	return o.to.gone
}

// request adds data with an answer expected; none if reply is empty.
func (o *outbox) request(subject string, reply, data []byte) error {
	switch {
	case o.to != nil:
	case len(reply) == 0:
		return o.conn.Publish(subject, data)
	default:
		return o.conn.PublishRequest(subject, string(reply), data)
	}
	o.frames = append(o.frames, "PUB "...)
	o.frame(subject, reply, nil, data)
	return nil
}

// publish adds a message, with an ID that the server takes only once if that is
// not empty.
func (o *outbox) publish(subject string, reply []byte, m *backend.Message, once string) error {
	w := headerWriter{header: o.message.Header, values: o.values[:0]}
	if o.to != nil {
		w = headerWriter{text: append(o.headers[:0], headersBegin+"\r\n"...)}
	}
	w.write(m)
	if once != "" {
		w.set(onceHeader, once)
	}
	if o.to == nil {
		o.values = w.values
		o.message.Subject, o.message.Reply, o.message.Data = subject, string(reply), m.Payload
		err := o.conn.PublishMsg(&o.message)
		o.message.Data = nil
		return err
	}
	if o.headers = append(w.text, "\r\n"...); len(o.headers)+len(m.Payload) > o.maxPayload() {
		return natsgo.ErrMaxPayload // the server would end the connection
	}
	o.frames = append(o.frames, "HPUB "...)
	o.frame(subject, reply, o.headers, m.Payload)
	return nil
}

// frame adds what comes behind PUB or HPUB.
func (o *outbox) frame(subject string, reply, headers, data []byte) {
	f := append(o.frames, subject...)
	f = append(f, ' ')
	if len(reply) > 0 {
		f = append(f, reply...)
		f = append(f, ' ')
	}
	if headers != nil {
		f = strconv.AppendInt(f, int64(len(headers)), 10)
		f = append(f, ' ')
	}
	f = strconv.AppendInt(f, int64(len(headers)+len(data)), 10)
	f = append(f, "\r\n"...)
	f = append(f, headers...)
	if len(data) > outboxCopies {
		o.large = append(o.large, stretch{len(f), data})
		o.apart += len(data)
	} else {
		f = append(f, data...)
	}
	o.frames = append(f, "\r\n"...)
	o.ends = append(o.ends, len(o.frames)+o.apart)
}

// send sends what was added. An error is certain to mean that none of it has left.
func (o *outbox) send(ctx context.Context) error {
	if o.to == nil || len(o.frames) == 0 {
		return nil
	}
	from := 0
	o.pieces = o.pieces[:0]
	for _, l := range o.large {
		o.pieces = append(o.pieces, o.frames[from:l.at], l.data)
		from = l.at
	}
	o.pieces = append(o.pieces, o.frames[from:])
	all := o.pieces
	err := o.to.say(ctx, &o.pieces, o.ends)
	o.pieces = all
	clear(o.pieces)
	clear(o.large)
	o.large = o.large[:0]
	if cap(o.frames) > outboxKeeps {
		o.frames = nil
	}
	return err
}
