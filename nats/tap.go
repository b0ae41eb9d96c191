package nats

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// A tap takes the messages for some inboxes off a connection before the client
// library reads them, which makes nine allocations for each with headers, a map
// among them. It knows of the protocol where a message begins and where it ends.
// Everything else passes, and where it meets what it does not know, such as TLS,
// all of it: then the client library delivers. A nil tap takes nothing.
//
// A message of JetStream has the subject that it was published to. Which inbox it
// is for is told by the number of the subscription, and that by what the client
// library writes when it subscribes.
type tap struct {
	*link

	mu    sync.RWMutex
	boxes map[string]*box // by what subjects begin with, up to the last dot
	known map[int]*box    // by the number of the subscription
	last  *outlet         // of the last connection
}

func newTap() *tap { return tapOf(newLink()) }

func tapOf(l *link) *tap { return &tap{link: l, boxes: map[string]*box{}, known: map[int]*box{}} }

// aside returns a tap that takes nothing, of the same link.
func (t *tap) aside() *tap {
	if t == nil {
		return nil
	}
	return tapOf(t.link)
}

func (t *tap) add(prefix string, b *box) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.boxes[prefix] = b
	}
}

func (t *tap) remove(prefix string) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if b := t.boxes[prefix]; b != nil {
			t.forget(b)
			delete(t.boxes, prefix)
		}
	}
}

// mute notes that the server is about to be told to forget an inbox.
func (t *tap) mute(prefix string) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if b := t.boxes[prefix]; b != nil {
			t.forget(b)
		}
	}
}

func (t *tap) forget(b *box) {
	delete(t.known, b.sid)
	b.outlet.Store(nil)
}

// heard notes that the server is being told of an inbox.
func (t *tap) heard(prefix string, sid int, by *outlet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.boxes[prefix]; b != nil {
		t.forget(b)
		t.known[sid], b.sid = b, sid
		b.outlet.Store(by)
	}
}

// boxOf returns where the messages of a subscription belong; nil if they are to
// pass.
func (t *tap) boxOf(sid int) *box {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[sid]
}

// on puts the tap on a connection.
func (t *tap) on(conn net.Conn) net.Conn {
	if t == nil {
		return conn
	}
	o := newOutlet(conn, t)
	t.mu.Lock()
	t.last = o
	t.mu.Unlock()
	if t.life.Err() != nil {
		_ = o.Close() // whoever has given up did not see it
	}
	return &tapped{outlet: o, memory: make([]byte, tapRoom)}
}

const (
	tapRoom = 64 << 10 // how much is read at once
	large   = 16 << 10 // larger messages that are not here as a whole are read into memory of their own
)

// A tapped connection is one with a tap. It is read by one goroutine at a time.
type tapped struct {
	*outlet
	memory []byte
	here   []byte // read, and neither passed on nor taken: a part of memory
	passes int    // bytes that pass, whatever they are
	inLine bool   // what comes up to the end of the line passes
	blind  bool   // all of it does

	frames []frame // taken, and complete in memory
	next   frame   // the rest of which is still to come, if it is
	large  bool
}

// Read implements [net.Conn]: it reads what passes. What is taken before that is
// delivered before it returns, and what comes after only when Read is called
// again: so a receiver has both in order.
func (c *tapped) Read(p []byte) (n int, err error) {
	for {
		if c.passes == 0 {
			c.look()
		}
		if c.passes > 0 && len(c.here) > 0 {
			c.deliver()
			n = copy(p, c.here[:min(c.passes, len(c.here))])
			c.here, c.passes = c.here[n:], c.passes-n
			return n, nil
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
}

// look takes what does not pass, and finds out how much does of what comes then.
func (c *tapped) look() {
	for len(c.here) > 0 {
		end := bytes.IndexByte(c.here, '\n') + 1
		switch {
		case c.blind:
			c.passes = len(c.here)
		case c.inLine, c.here[0] == 'I', c.here[0] == 'P', c.here[0] == '+', c.here[0] == '-': // all that the server says but messages
			if end == 0 && !c.inLine && len(c.here) < large {
				return // the rest of the line is still to come
			}
			if end > 0 && !c.inLine {
				c.hears(c.here[:end])
			}
			c.inLine = end == 0
			if c.passes = end; c.inLine {
				c.passes = len(c.here)
			}
		case c.here[0] != 'M' && c.here[0] != 'H':
			c.blind = true
			continue
		case end == 0 && len(c.here) < len(c.memory):
			return // the rest of the line is still to come
		case end == 0:
			c.blind = true
			continue
		default:
			if c.message(c.here[:end]) {
				continue
			}
		}
		return
	}
}

// message deals with a message that begins with a line, and reports whether to look
// for more behind it.
func (c *tapped) message(line []byte) bool {
	var f frame
	if !f.parse(line) {
		c.blind = true
		return true
	}
	if f.box = c.tap.boxOf(f.sid); f.box == nil {
		c.passes = f.len()
		return false
	}
	if f.len() > len(c.here) {
		c.large = f.len() > large
		c.next = f
		return false
	}
	f.contents = c.here[:f.len()]
	c.frames = append(c.frames, f)
	c.here = c.here[f.len():]
	return true
}

// fill reads more, behind what is here.
func (c *tapped) fill() error {
	c.deliver()
	if c.large {
		c.large = false
		return c.takeLarge(c.next)
	}
	n := copy(c.memory, c.here)
	more, err := c.Conn.Read(c.memory[n:])
	c.here = c.memory[:n+more]
	if more > 0 {
		return nil // an error comes again
	}
	return err
}

// takeLarge reads the rest of a message, whose receiver gets the memory.
func (c *tapped) takeLarge(f frame) error {
	f.contents = make([]byte, f.len())
	n := copy(f.contents, c.here)
	c.here = nil
	if _, err := io.ReadFull(c.Conn, f.contents[n:]); err != nil {
		return err
	}
	f.box.add(f.arrival(string(f.name()), string(f.text()), f.data()))
	return nil
}

// deliver delivers what was taken, before what is in memory goes.
func (c *tapped) deliver() {
	for from := 0; from < len(c.frames); {
		to := from + 1
		for to < len(c.frames) && c.frames[to].box == c.frames[from].box {
			to++
		}
		c.frames[from].box.put(c.frames[from:to])
		from = to
	}
	clear(c.frames)
	c.frames = c.frames[:0]
}
