package nats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/natstest"
)

// What passed the tap, because it did not know the number yet, came before what it
// has taken.
func TestInboxKeepsTheOrder(t *testing.T) {
	t.Parallel()
	tp := newTap()
	in := &inbox{prefix: inboxHere, tap: tp, msgs: make(chan *natsgo.Msg, 1000), box: newBox()}
	tp.add(inboxHere, in.box)
	const passing, taken = handful + 6, 3
	var text strings.Builder
	for i := range passing + taken {
		if i == passing {
			fmt.Fprintf(&text, "MSG %s0 7 0\r\n\r\n", inboxHere) // tells the number
		}
		fmt.Fprintf(&text, "MSG bus.a 7 $JS.ACK.%d 0\r\n\r\n", i)
	}
	conn := tp.on(&wire{pieces: [][]byte{[]byte(text.String())}})
	p := make([]byte, 1000)
	for {
		n, err := conn.Read(p) // one message, as each passes on its own
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		f := frame{contents: bytes.Clone(p[:n])}
		require.True(t, f.parse(f.contents[:n-len("\r\n")]))
		m := &natsgo.Msg{Subject: string(f.subject.of(f.contents))}
		if f.reply.to > 0 {
			m.Reply = string(f.name())
		}
		in.msgs <- m
	}
	var got, want []string
	for i := range passing + taken {
		want = append(want, fmt.Sprintf("$JS.ACK.%d", i))
	}
	for here := in.arrived(); len(here) > 0; here = in.arrived() {
		for _, a := range here {
			if a.reply != "" {
				got = append(got, a.reply)
			}
		}
		in.took(len(here))
	}
	require.Equal(t, want, got)
}

// Where a pull could not be sent, what came before it may not have been either: the
// next begins with a new inbox.
func TestPullThatIsNotSentLeavesItsInbox(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	b, err := Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	attached, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	member := attached.(*source)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{typical(), typical()}))
	ds, err := member.Receive(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	first, next := member.pulls.inbox.prefix, member.next
	member.next = "" // no subject
	_, err = member.Receive(t.Context(), 1)
	require.Error(t, err)
	member.next = next
	ds, err = member.Receive(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.NotEqual(t, first, member.pulls.inbox.prefix)
}
