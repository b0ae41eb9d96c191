package nats

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// nowhere is the origin of a message that another program stored.
var nowhere = &record{stream: "bus=orders", Sequence: 17, Time: time.Unix(1_764_000_000, 5)}

// parsePlainAck agrees with the JSON decoder, or leaves the answer to it.
func TestPlainAck(t *testing.T) {
	t.Parallel()
	for text, plain := range map[string]bool{
		`{"stream":"bus=a","seq":1}`:                               true,
		`{"stream":"bus=a", "seq":1}`:                              true,
		`{"stream":"bus=a","domain":"hub","seq":1}`:                false,
		`{"stream":"bus=a","seq":9223372036854775807}`:             true,
		`{"stream":"bus=a","seq":18446744073709551616}`:            false,
		`{"stream":"bus=ab","seq":1}`:                              false,
		`{"stream":"bus=a","seq":1,"duplicate": true}`:             false,
		`{"stream":"bus=a","duplicate":true,"seq":1}`:              false,
		`{"stream":"bus=a","domain":"hub","val":"1","seq":1}`:      false,
		`{"stream":"bus=a","seq":}`:                                false,
		`{"stream":"bus=a","seq":-1}`:                              false,
		`{"error":{"code":503,"err_code":10077},"stream":"bus=a"}`: false,
		`{"stream":"bus=a"`:                                        false,
		``:                                                         false,
	} {
		seq, ok := parsePlainAck([]byte(text), "bus=a")
		require.Equal(t, plain, ok, text)
		if ok {
			var a pubAck
			require.NoError(t, json.Unmarshal([]byte(text), &a))
			require.Equal(t, a.Sequence, seq)
		}
	}
}

func TestMetaOf(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]deliveryMeta{
		"$JS.ACK.bus=a.g.3.17.20.1700000000000000000.5":                {3, 17, 20},
		"$JS.ACK.hub.ABCDEF.bus=a.g.2.9.20.1700000000000000000.6":      {2, 9, 20},
		"$JS.ACK.hub.ABCDEF.bus=a.g.2.9.20.1700000000000000000.70.tok": {2, 9, 20},
		"$JS.ACK.a.b.1.2.3": {1, 2, 3},
	} {
		got, err := parseReply(reply)
		require.NoError(t, err, reply)
		require.Equal(t, want, got, reply)
	}
	for _, reply := range []string{"", "$JS.ACK.a.b.c", "$JS.ACK.a.b.1.x.1.1.1", "_INBOX.a.b.1.1.1.1.1.1"} {
		_, err := parseReply(reply)
		require.Error(t, err, reply)
	}
}

// FuzzMetaOf looks for replies that parseReply reads differently from a token-by-token reader.
func FuzzMetaOf(f *testing.F) {
	f.Add("$JS.ACK.bus=a.g.3.17.20.1700000000000000000.5")
	f.Add("$JS.ACK.hub.ABCDEF.bus=a.g.2.9.20.1700000000000000000.5")
	f.Fuzz(func(t *testing.T, reply string) {
		tokens := strings.Split(reply, ".")
		at := 4
		if len(tokens) >= 11 {
			at = 6
		}
		m, err := parseReply(reply)
		if err != nil {
			return
		}
		require.Greater(t, len(tokens), at+2)
		require.Equal(t, []string{"$JS", "ACK"}, tokens[:2])
		delivered, err := strconv.Atoi(tokens[at])
		require.NoError(t, err)
		sequence, err := strconv.ParseUint(tokens[at+1], 10, 64)
		require.NoError(t, err)
		number, err := strconv.ParseUint(tokens[at+2], 10, 64)
		require.NoError(t, err)
		require.Equal(t, deliveryMeta{delivered, sequence, number}, m)
	})
}

func TestPosition(t *testing.T) {
	t.Parallel()
	for _, seq := range []uint64{0, 1, 10, 1<<63 + 5, 1<<64 - 1} {
		p := position(seq)
		require.Len(t, p, positionLen)
		got, err := parsePosition(p)
		require.NoError(t, err)
		require.Equal(t, seq, got)
	}
	for _, bad := range []string{"", "1", "0000000000000000000x", "99999999999999999999"} {
		_, err := parsePosition(bad)
		require.ErrorIs(t, err, backend.ErrRefused)
	}
}

// The server's answers are plain; otherwise each one would be decoded twice.
func TestAnswersArePlain(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	conn, err := natsgo.Connect(s.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := New(conn, Options{})
	require.NoError(t, err)
	m := &backend.Message{Topic: "a.b"}
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
	answer, err := conn.Request("bus.a.b", nil, time.Minute)
	require.NoError(t, err)
	seq, ok := parsePlainAck(answer.Data, "bus=a+b")
	require.True(t, ok, "%s", answer.Data)
	require.Equal(t, m.Position, position(seq-1))
}

// A violation about one subject does not concern another subject that begins with it.
func TestConcerns(t *testing.T) {
	t.Parallel()
	violation := errors.New(`nats: permissions violation: Permissions Violation for Publish to "bus.orders.dlq"`)
	require.True(t, concerns(violation, "bus.orders.dlq"))
	require.False(t, concerns(violation, "bus.orders"))
	require.False(t, concerns(nil, "bus.orders"))
}

// The number of unread messages comes from the stream, because the consumer hears of stored
// messages a moment later. That is not possible if other topics share the stream or messages in
// between were deleted.
func TestUnread(t *testing.T) {
	alone, shared := &location{stream: "bus=t"}, &location{stream: "events", prefix: "t="}
	for _, row := range []struct {
		name      string
		state     jetstream.StreamState
		delivered uint64
		want      uint64
	}{
		{"nothing is stored", jetstream.StreamState{}, 0, 0},
		{"all is unread", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 0, 6},
		{"some is", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 4, 2},
		{"nothing is", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 6, 0},
		{"the first are gone", jetstream.StreamState{Msgs: 2, FirstSeq: 5, LastSeq: 6}, 1, 2},
		{"all is gone", jetstream.StreamState{FirstSeq: 7, LastSeq: 6}, 1, 0},
		{"more was handed out since", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 9, 0},
		{"there are holes", jetstream.StreamState{Msgs: 5, NumDeleted: 1, FirstSeq: 1, LastSeq: 6}, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, unread(alone, row.state, row.delivered))
			require.Zero(t, unread(shared, row.state, row.delivered))
		})
	}
}

// isUnserved tells the server's status messages from answers.
func TestIsUnserved(t *testing.T) {
	t.Parallel()
	for text, unserved := range map[string]bool{
		"NATS/1.0 503\r\n\r\n":                                 true,
		"NATS/1.0 404 No Messages\r\n\r\n":                     false,
		"NATS/1.0 409 Exceeded MaxRequestBatch of 100\r\n\r\n": false,
		"NATS/1.0\r\nce-id: 503\r\n\r\n":                       false,
	} {
		h, err := natsgo.DecodeHeadersMsg([]byte(text))
		require.NoError(t, err)
		require.Equal(t, unserved, isUnserved(&natsgo.Msg{Header: h}), text)
	}
}
