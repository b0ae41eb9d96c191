package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/faultproxy"
	"github.com/seed41896749/eventbus/internal/natstest"
)

// A drain takes what is written.
type drain struct {
	net.Conn
	bytes.Buffer
}

func (d *drain) Write(p []byte) (int, error)    { return d.Buffer.Write(p) }
func (*drain) SetWriteDeadline(time.Time) error { return nil }
func (d *drain) Read([]byte) (int, error)       { return 0, io.EOF }
func (*drain) Close() error                     { return nil }

// open makes an outlet whose server has said what it has to.
func open(conn net.Conn, t *tap) *outlet {
	o := newOutlet(conn, t)
	o.hears([]byte("INFO {\"max_payload\":1048576}\r\n"))
	return o
}

// anUtterance is an operation of a client.
func anUtterance(r *rand.Rand) string {
	body := strings.Repeat("SUB x 1\r\n", r.IntN(5))
	switch r.IntN(7) {
	case 0:
		return "PING\r\n"
	case 1:
		return "CONNECT {\"verbose\":false}\r\n"
	case 2:
		return fmt.Sprintf("SUB bus.a q%d %d\r\n", r.IntN(9), r.IntN(9))
	case 3:
		return fmt.Sprintf("UNSUB %d\r\n", r.IntN(9))
	case 4:
		return fmt.Sprintf("PUB bus.a %d\r\n%s\r\n", len(body), body)
	case 5:
		return fmt.Sprintf("PUB bus.a reply %d\r\n%s\r\n", len(body), body)
	}
	return fmt.Sprintf("HPUB bus.a %d %d\r\nNATS/1.0\r\n\r\n%s\r\n", 12, 12+len(body), body)
}

// What goes straight never comes into the middle of an operation of the client
// library, wherever its writes end; and where they end between two it does go.
func TestStraightComesBetweenOperations(t *testing.T) { // not beside others: it keeps a processor busy
	const ours = "PUB ours 0\r\n\r\n"
	said, refused := 0, 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := &drain{}
		o := open(d, newTap())
		var want strings.Builder
		for range 20 {
			theirs := anUtterance(r)
			for _, piece := range cut(r, theirs, 1<<r.IntN(10)) {
				_, err := o.Write(piece)
				require.NoError(t, err)
				want.Write(piece)
				theirs = theirs[len(piece):]
				err = o.say(t.Context(), &net.Buffers{[]byte(ours)}, nil)
				require.Equal(t, theirs == "", err == nil, "seed %d: %q is still to come", seed, theirs)
				if err != nil {
					require.ErrorIs(t, err, backend.ErrUnavailable)
					refused++
					continue
				}
				want.WriteString(ours)
				said++
			}
		}
		require.Equal(t, want.String(), d.String())
	}
	require.NotZero(t, said)
	require.NotZero(t, refused)
}

// Who writes what is not known, such as TLS, is not followed any more: nobody goes
// straight.
func TestNobodyGoesStraightBesideTheUnknown(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"\x16\x03\x01\x02\n", "PUB a b\r\n", "PUB a -1\r\n", "SUB a x\r\n", "MSG a 1 0\r\n", "\r\n", "PING\n", strings.Repeat("a", lineMost+1)} {
		d := &drain{}
		o := open(d, newTap())
		require.True(t, o.isOpen())
		_, err := o.Write([]byte(odd))
		require.NoError(t, err)
		require.False(t, o.isOpen(), "%q", odd)
		require.Error(t, o.say(t.Context(), &net.Buffers{[]byte("PING\r\n")}, nil))
		require.Equal(t, odd, d.String())
	}
}

// An inbox is known to a server from the moment it is told of it, under the number
// it is told, until it is told otherwise or the connection is closed.
func TestOutletLearnsOfInboxes(t *testing.T) {
	t.Parallel()
	tp, in := newTap(), &inbox{prefix: inboxHere, box: newBox()}
	in.tap = tp
	tp.add(inboxHere, in.box)
	first := open(&drain{}, tp)
	for _, other := range []string{"SUB " + inboxHere + "0  1\r\n", "SUB " + inboxHere + "* group 2\r\n", "SUB _INBOX.there.*  3\r\n"} {
		_, err := first.Write([]byte(other))
		require.NoError(t, err)
		require.Nil(t, in.outlet(), other)
	}
	_, err := first.Write([]byte("SUB " + inboxHere + "*  7\r\n"))
	require.NoError(t, err)
	require.Same(t, first, in.outlet())
	require.Same(t, in.box, tp.boxOf(7))
	require.NoError(t, first.Close())
	require.Nil(t, in.outlet())
	second := open(&drain{}, tp)
	_, err = second.Write([]byte("SUB " + inboxHere + "*  7\r\n"))
	require.NoError(t, err)
	require.Same(t, second, in.outlet())
	in.unsubscribe()
	require.Nil(t, in.outlet())
}

// pipe returns both ends of a connection.
func pipe(t *testing.T) (here, there net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	here, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	there, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// tooMuch is more than a connection takes that nobody reads.
const tooMuch = 24 << 20

// Where the connection takes no more, a call does not wait for it: the rest goes
// out when it can, before anything else, and what the caller lent is its own again.
func TestStraightLeavesWhatIsHeldUp(t *testing.T) {
	t.Parallel()
	here, there := pipe(t)
	o := open(here, newTap())
	o.patience = time.Minute
	lent := bytes.Repeat([]byte("x"), tooMuch)
	require.NoError(t, o.say(t.Context(), &net.Buffers{[]byte("begin"), lent, []byte("end")}, nil))
	clear(lent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := o.say(ctx, &net.Buffers{[]byte("PING\r\n")}, nil)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	written := make(chan error, 1)
	go func() {
		_, err := o.Write([]byte("PING\r\n"))
		written <- err
	}()
	want := "begin" + strings.Repeat("x", tooMuch) + "end" + "PING\r\n"
	got := make([]byte, len(want))
	_, err = io.ReadFull(there, got)
	require.NoError(t, err)
	require.True(t, want == string(got))
	require.NoError(t, <-written)
	require.NoError(t, o.say(t.Context(), &net.Buffers{[]byte("PING\r\n")}, nil), "its time has no effect on the next")
}

// A connection that takes nothing for long is given up, as it ends in the middle of
// something.
func TestStraightGivesUpWhatTakesNothing(t *testing.T) {
	t.Parallel()
	here, _ := pipe(t)
	o := open(here, newTap())
	require.NoError(t, o.say(t.Context(), &net.Buffers{make([]byte, tooMuch)}, nil))
	select {
	case <-o.gone:
	case <-time.After(time.Minute):
		t.Fatal("it is kept")
	}
	require.ErrorIs(t, o.say(t.Context(), &net.Buffers{[]byte("PING\r\n")}, nil), backend.ErrUnavailable)
}

// A connection that is slow takes all that a call says, however long that is, and
// between its operations what the client library has to say; but no other call's.
func TestStraightIsPatientWithTheSlow(t *testing.T) {
	t.Parallel()
	here, there := pipe(t)
	o := open(here, newTap())
	o.patience = 5 * time.Second
	const operations, size = 32, 1 << 20
	payload := strings.Repeat("x", size-len("PUB ours 1048553\r\n\r\n"))
	ours := "PUB ours 1048553\r\n" + payload + "\r\n"
	var what net.Buffers
	var ends []int
	for i := range operations {
		what, ends = append(what, []byte(ours)), append(ends, (i+1)*size)
	}
	require.NoError(t, o.say(t.Context(), &what, ends))
	wrong := make(chan error, 2)
	go func() {
		_ = o.SetWriteDeadline(time.Now().Add(time.Minute))
		_, err := o.Write([]byte("PING\r\n"))
		wrong <- err
	}()
	go func() { wrong <- o.say(t.Context(), &net.Buffers{[]byte("PUB next 0\r\n\r\n")}, nil) }()
	const want = operations*size + len("PING\r\n") + len("PUB next 0\r\n\r\n")
	got := make([]byte, want)
	for from := 0; from < want; from += size {
		_, err := io.ReadFull(there, got[from:min(from+size, want)])
		require.NoError(t, err, "after %d bytes", from)
		time.Sleep(2 * o.patience / operations)
	}
	require.NoError(t, <-wrong)
	require.NoError(t, <-wrong)
	before, behind, ok := strings.Cut(string(got), "PING\r\n")
	require.True(t, ok)
	require.Zero(t, len(before)%size, "between operations")
	require.NotEmpty(t, before)
	require.True(t, before+behind == strings.Repeat(ours, operations)+"PUB next 0\r\n\r\n")
	require.Greater(t, len(behind), size, "it does not wait for all")
}

// The client library's writes keep their time, also where they wait for others.
func TestLibraryWaitsForItsTurnInTime(t *testing.T) {
	t.Parallel()
	here, _ := pipe(t)
	o := open(here, newTap())
	require.NoError(t, o.SetWriteDeadline(time.Now().Add(time.Millisecond)))
	o.turn <- struct{}{}
	_, err := o.Write([]byte("PING\r\n"))
	var late net.Error
	require.ErrorAs(t, err, &late)
	require.True(t, late.Timeout())
	o.leave()
	message := fmt.Appendf(nil, "PUB a %d\r\n%s\r\n", tooMuch, make([]byte, tooMuch))
	require.NoError(t, o.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	n, err := o.Write(message)
	require.ErrorAs(t, err, &late)
	require.True(t, late.Timeout())
	require.NotZero(t, n)
}

// After the first call of each kind all that is published, received and settled
// goes past the client library.
func TestCallsGoStraight(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	work := func() {
		s.publish(3)
		ds := s.receive(3, 3)
		require.NoError(t, s.member.Extend(t.Context(), backend.Lend(ds)))
		require.NoError(t, s.member.Ack(t.Context(), backend.Lend(ds)))
	}
	work()
	before, asked := s.conn.Stats(), s.questions()
	for range 10 {
		work()
	}
	after := s.conn.Stats()
	asked = s.questions() - asked
	require.LessOrEqual(t, after.OutMsgs-before.OutMsgs, asked)
	require.LessOrEqual(t, after.InMsgs-before.InMsgs, asked)
}

// What is too large only with its headers as they are written is refused here: for a
// server that is the end of the connection.
func TestTooLargeAsItIsWritten(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(1)
	s.publish(1)
	m := typical()
	m.Headers.Set("note", strings.Repeat("é", 20<<10)) // three times as long
	m.Payload = nil
	m.Payload = make([]byte, backend.LimitsOf(s.Backend).Payload-m.Size())
	before := s.conn.Stats()
	require.ErrorIs(t, s.Publish(t.Context(), []*backend.Message{m}), backend.ErrTooLarge)
	s.publish(1)
	require.Equal(t, before.Reconnects, s.conn.Stats().Reconnects)
}

// On a connection that is lent, too, a call leaves a library that holds it up: here
// because it is dialing.
func TestPublishLeavesALentConnection(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := faultproxy.New(t, s.Addr())
	conn, err := natsgo.Connect("nats://"+p.Addr(), natsgo.ReconnectBufSize(-1), natsgo.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := New(conn, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical()}))
	thaw := p.Freeze()
	defer thaw()
	require.NoError(t, conn.ForceReconnect())
	time.Sleep(100 * time.Millisecond) // it dials, with its lock held
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	require.Error(t, b.Publish(ctx, []*backend.Message{typical()}))
	require.Less(t, time.Since(start), time.Second)
}

// A call that has left the client library has left nothing behind: what it was lent
// is not read any more, and nothing is sent when the library goes on.
func TestPublishThatHasLeftSendsNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	p := faultproxy.New(t, s.Addr())
	b, conn, err := Connect("nats://"+p.Addr(), Options{}, natsgo.ReconnectBufSize(-1))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical()}))
	thaw := p.Freeze()
	require.NoError(t, conn.ForceReconnect())
	require.Eventually(t, func() bool {
		free := make(chan struct{})
		go func() {
			conn.IsConnected()
			close(free)
		}()
		select {
		case <-free:
			return false
		case <-time.After(100 * time.Millisecond):
			return true
		}
	}, 10*time.Second, time.Millisecond, "the library holds up nobody")
	b.tap.connecting.Store(false) // as it was for who has asked just before
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	m := typical()
	m.ID = "late"
	require.ErrorIs(t, b.Publish(ctx, []*backend.Message{m}), backend.ErrUnknownOutcome)
	m.Headers[0].Value = "its caller's again"
	clear(m.Payload)
	thaw()
	require.Eventually(t, conn.IsConnected, 10*time.Second, time.Millisecond)
	for range lineCount { // all that waited has gone on
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical()}))
	}
	ms, err := b.Read(t.Context(), m.Topic, "", 100)
	require.NoError(t, err)
	require.Len(t, ms, 1+lineCount)
}

// A call that the client library holds up, as while it waits for a server to greet
// it, is left when its context is done, and nothing of its messages is read any
// more.
func TestPublishLeavesTheLibrary(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(1)
	end := s.hush()
	asked := make(chan struct{})
	go func() {
		s.conn.IsConnected()
		close(asked)
	}()
	s.tap.connecting.Store(false) // as it was for who has asked just before
	for _, topic := range []string{"orders", "new"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		m := typical()
		m.Topic = topic
		err := s.Publish(ctx, []*backend.Message{m})
		clear(m.Payload)
		cancel()
		require.True(t, errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome), "%v", err)
	}
	select {
	case <-asked:
		t.Fatal("the library has held up nobody: the test shows nothing")
	default:
	}
	end()
	<-asked
}

// Whatever begins or ends while the client library holds everybody up asks it for
// nothing.
func TestNothingWaitsWhileConnecting(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	deaf, err := newLine(s.conn, s.tap)
	require.NoError(t, err)
	deaf.deaf = true
	var left inbox
	require.NoError(t, left.open(s.conn, s.tap, s.conn.NewInbox()+".", 1))
	defer s.hush()()
	soon := func(what string, f func()) {
		start := time.Now()
		f()
		require.Less(t, time.Since(start), 2*time.Second, what)
	}
	soon("a line begins a call that had heard nothing", func() { require.ErrorIs(t, deaf.begin(1), errNotConnected) })
	soon("an inbox ends", left.close)
	soon("a line ends", func() { require.NoError(t, deaf.close()) })
	soon("a member leaves", func() { require.NoError(t, s.member.Close()) })
	soon("an inbox begins", func() {
		var in inbox
		require.ErrorIs(t, in.open(s.conn, s.tap, s.conn.NewInbox()+".", 1), errNotConnected)
	})
}

// A backend ends also while the client library holds everybody up, and makes no
// connections after that.
func TestCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(1)
	s.receive(1, 1)
	last := func() *outlet {
		s.tap.mu.RLock()
		defer s.tap.mu.RUnlock()
		return s.tap.last
	}
	before := last()
	defer s.hush()()
	require.Eventually(t, func() bool { // it waits to be greeted
		return last() != before && s.tap.isConnecting()
	}, 5*time.Second, time.Millisecond)
	start := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(start), 2*time.Second)
	_, err := (&dialer{tap: s.tap}).Dial("tcp", s.server.Addr())
	require.ErrorIs(t, err, context.Canceled)
}

// What is connected just as the backend ends is closed: whoever ends it has not seen
// it.
func TestConnectedTooLate(t *testing.T) {
	t.Parallel()
	tp := newTap()
	tp.giveUp()
	here, there := net.Pipe()
	require.NoError(t, there.SetReadDeadline(time.Now().Add(5*time.Second)))
	tp.on(here)
	_, err := there.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
