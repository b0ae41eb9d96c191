package nats

import (
	"bytes"
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
)

// A wire is what a server sends, piece by piece.
type wire struct {
	net.Conn
	pieces [][]byte
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, w.pieces[0])
	if w.pieces[0] = w.pieces[0][n:]; len(w.pieces[0]) == 0 {
		w.pieces = w.pieces[1:]
	}
	return n, nil
}

// cut makes pieces of any length of a text.
func cut(r *rand.Rand, text string, most int) (pieces [][]byte) {
	for text != "" {
		n := min(1+r.IntN(most), len(text))
		pieces = append(pieces, []byte(text[:n]))
		text = text[n:]
	}
	return pieces
}

const inboxHere = "_INBOX.here."

// anOperation is something that a server says, and how its receiver sees it: as it
// is, where it passes.
func anOperation(r *rand.Rand) (text, seen string) {
	body := strings.Repeat("MSG x 7 1\r\n", r.IntN(4))
	switch r.IntN(40) {
	case 0:
		body = strings.Repeat("x", large+r.IntN(2*tapRoom))
	case 1:
		body = strings.Repeat("y", r.IntN(large))
	}
	headers := "NATS/1.0\r\nce-id: 1\r\n\r\n"
	passes := func(text string) (string, string) { return text, text }
	switch r.IntN(9) {
	case 0:
		return passes("PING\r\n")
	case 1:
		return passes("+OK\r\n")
	case 2:
		return passes("-ERR 'MSG _INBOX.here.1 7 3'\r\n")
	case 3:
		return passes(`INFO {"server_id":"` + strings.Repeat("MSG ", r.IntN(40_000)) + "\"}\r\n")
	case 4:
		return passes(fmt.Sprintf("MSG _INBOX.there.1 8 %d\r\n%s\r\n", len(body), body))
	case 5:
		return passes(fmt.Sprintf("HMSG bus.a 9 $JS.ACK.1 %d %d\r\n%s%s\r\n", len(headers), len(headers)+len(body), headers, body))
	case 6:
		return fmt.Sprintf("MSG %s1 7 %d\r\n%s\r\n", inboxHere, len(body), body), inboxHere + "1|||" + body
	case 7:
		return fmt.Sprintf("MSG bus.a 7 $JS.ACK.1 %d\r\n%s\r\n", len(body), body), "|$JS.ACK.1||" + body
	}
	return fmt.Sprintf("HMSG bus.a 7 $JS.ACK.22 %d %d\r\n%s%s\r\n", len(headers), len(headers)+len(body), headers, body),
		"|$JS.ACK.22|" + headers + "|" + body
}

// What a tap takes and what passes are together what the server has sent, in its
// order, wherever the reads divide it.
func TestTapTakesWhatIsItsOwn(t *testing.T) { // not beside others: it keeps a processor busy
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		var text, want strings.Builder
		for range r.IntN(60) {
			sent, seen := anOperation(r)
			text.WriteString(sent)
			want.WriteString(seen)
		}
		tp, b := newTap(), newBox()
		tp.add(inboxHere, b)
		tp.heard(inboxHere, 7, nil)
		conn := tp.on(&wire{pieces: cut(r, text.String(), 1<<r.IntN(18))})
		var got strings.Builder
		p := make([]byte, 1+r.IntN(40_000))
		for {
			n, err := conn.Read(p)
			for _, a := range b.swap(nil) {
				got.WriteString(a.subject + "|" + a.reply + "|" + a.text + "|" + string(a.data))
			}
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
			got.Write(p[:n])
		}
		require.True(t, want.String() == got.String(), "seed %d: %d bytes, want %d", seed, got.Len(), want.Len())
	}
}

// What a tap does not know passes, and all that comes behind it.
func TestTapLetsPassWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{
		"\x16\x03\x01", "msg a 7 0\r\n\r\n", "MSG a 7\r\n", "MSG a 7 b c 0\r\n\r\n", "MSG a  0\r\n\r\n", "MSG a 7 0\n\n", "MSG a x 0\r\n\r\n",
		"MSG a 7 -1\r\n", "HMSG a 7 5 4\r\nabcd\r\n", "HMSG a 7 4\r\nabcd\r\n", "MESSAGE a 7 0\r\n\r\n", "MSG " + strings.Repeat("a", tapRoom), "\r\n",
	} {
		text := "INFO {}\r\n" + odd + "MSG " + inboxHere + "0 7 0\r\n\r\n"
		tp, b := newTap(), newBox()
		tp.add(inboxHere, b)
		tp.heard(inboxHere, 7, nil)
		got, err := io.ReadAll(tp.on(&wire{pieces: cut(rand.New(rand.NewPCG(1, 2)), text, 1000)}))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		require.Empty(t, b.swap(nil))
	}
}

// A number belongs to the subscription that has it now; without one, messages
// pass.
func TestTapForgetsNumbers(t *testing.T) {
	t.Parallel()
	tp, b := newTap(), newBox()
	tp.add(inboxHere, b)
	require.Nil(t, tp.boxOf(7))
	tp.heard(inboxHere, 7, nil)
	require.Same(t, b, tp.boxOf(7))
	tp.heard(inboxHere, 8, nil)
	require.Same(t, b, tp.boxOf(8))
	require.Nil(t, tp.boxOf(7))
	tp.mute(inboxHere)
	require.Nil(t, tp.boxOf(8))
	tp.heard(inboxHere, 9, nil)
	tp.remove(inboxHere)
	require.Nil(t, tp.boxOf(9))
	tp.heard(inboxHere, 10, nil)
	require.Nil(t, tp.boxOf(10), "nobody listens any more")
}

// What the server says in place of a message is the same for both ways.
func TestStatus(t *testing.T) {
	t.Parallel()
	for text, unserved := range map[string]bool{
		"NATS/1.0 503\r\n\r\n":                                             true,
		"NATS/1.0 404 No Messages\r\n\r\n":                                 false,
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\n\r\n": false,
		"NATS/1.0 409 Exceeded MaxRequestBatch of 100\r\n\r\n":             false,
		"NATS/1.0\r\nce-id: 503\r\n\r\n":                                   false,
	} {
		h, err := natsgo.DecodeHeadersMsg([]byte(text))
		require.NoError(t, err)
		ours, theirs := arrival{text: text}, arrival{header: h}
		code, description := ours.status()
		require.Equal(t, []string{h.Get("Status"), h.Get("Description")}, []string{code, description})
		require.Equal(t, []bool{unserved, unserved}, []bool{ours.isUnserved(), theirs.isUnserved()}, text)
	}
}

// All that a member of a group receives comes by the tap, also when the connection
// was lost.
func TestReceiveComesByTheTap(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other := s.conn.Stats().InMsgs - s.questions()
	for range 2 {
		for _, size := range []int{0, 256, large + 1, 900_000} {
			m := typical()
			m.Payload = bytes.Repeat([]byte("x"), size)
			require.NoError(t, s.Publish(t.Context(), []*backend.Message{m}))
			ds := s.receive(10, 1)
			require.Equal(t, m.Payload, append([]byte{}, ds[0].Payload...))
			require.Equal(t, []string{m.ID, m.Key}, []string{ds[0].ID, ds[0].Key})
			require.ElementsMatch(t, m.Headers, ds[0].Headers)
			require.NoError(t, s.member.Ack(t.Context(), backend.Lend(ds)))
			require.LessOrEqual(t, s.conn.Stats().InMsgs, other+s.questions())
		}
		require.NoError(t, s.conn.ForceReconnect())
		require.Eventually(t, s.conn.IsConnected, 10*time.Second, time.Millisecond)
	}
}

// What a tap takes is allocated for each read of the connection, not for each
// message.
func TestTappingAllocatesPerReadNotPerMessage(t *testing.T) {
	const messages = 100
	var text strings.Builder
	for i := range messages {
		headers := "NATS/1.0\r\nce-id: 019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10\r\nce-time: 2026-11-21T10:30:00.123456789Z\r\n\r\n"
		fmt.Fprintf(&text, "HMSG bus.orders 7 $JS.ACK.bus=orders.billing.1.%d.%d.1795243593723000000.1 %d %d\r\n%s%s\r\n",
			i, i, len(headers), len(headers)+256, headers, strings.Repeat("x", 256))
	}
	tp, b := newTap(), newBox()
	tp.add(inboxHere, b)
	tp.heard(inboxHere, 7, nil)
	w := &wire{}
	conn := tp.on(w)
	pieces := [][]byte{[]byte(text.String())}
	p := make([]byte, 1)
	var memory []arrival
	allocs := testing.AllocsPerRun(100, func() {
		w.pieces = append(w.pieces[:0], pieces...)
		_, _ = conn.Read(p)
		clear(memory)
		memory = b.swap(memory[:0])
		if len(memory) != messages {
			t.Fatal(len(memory))
		}
	})
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 4.0, "allocations for a read of %d messages", messages)
}
