package nats

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// nowhere is the origin of a message that another program stored.
var nowhere = &record{stream: "bus=orders", Sequence: 17, Time: time.Unix(1_764_000_000, 5)}

// roundTrip sends the headers of m through the client library's own codec.
func roundTrip(t *testing.T, m backend.Message) backend.Message {
	t.Helper()
	var text strings.Builder
	text.WriteString("NATS/1.0\r\n")
	for _, h := range writeHeader(nil, &m, "") {
		text.WriteString(h.Name + ": " + h.Value + "\r\n")
	}
	text.WriteString("\r\n")
	h, err := natsgo.DecodeHeadersMsg([]byte(text.String()))
	require.NoError(t, err)
	var mem slab.Slab
	mem.Expect(0, len(h), 0)
	var got backend.Message
	readHeader(&mem, &got, h, nowhere)
	return got
}

// FuzzHeaders looks for texts that change on the way.
func FuzzHeaders(f *testing.F) {
	f.Add("id", "key", "name", "value")
	f.Add(" ", "a b ", "ce-type", "%41\r\nNats-Rollup: all")
	f.Add("é", "\x00", "Nats-Msg-Id", "")
	f.Add("", "", "ce-id", "ce-")
	f.Add("a%2Fb", "é", "Traceparent", "x")
	f.Add("1", "", "Content-Type", "a/b")
	f.Add(" 1", "", "ce-datacontenttype", "a%b")
	f.Fuzz(func(t *testing.T, id, key, name, value string) {
		m := backend.Message{ID: id, Key: key}
		if name != "" {
			m.Headers = backend.Headers{{Name: name, Value: value}}
		}
		got := roundTrip(t, m)
		require.Equal(t, m.ID, got.ID)
		require.Equal(t, m.Key, got.Key)
		require.Equal(t, m.Headers, got.Headers)
		if name == versionHeader || name == timeHeader {
			return
		}
		m.Headers = append(m.Headers, backend.Header{Name: versionHeader, Value: "1.0"}, backend.Header{Name: timeHeader, Value: value})
		got = roundTrip(t, m)
		require.Equal(t, m.ID, got.ID)
		require.Equal(t, m.Key, got.Key)
		require.ElementsMatch(t, m.Headers, got.Headers)
	})
}

// plainAck agrees with the JSON decoder, or leaves the answer to it.
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

// FuzzMetaOf looks for replies that metaOf reads differently from a token-by-token reader.
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
	conn, err := natsgo.Connect(s.URL(), natstest.Patient)
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
