package nats

import (
	"strconv"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

func read(h natsgo.Header) (m backend.Message) {
	readHeader(new(slab.Slab), &m, h, nowhere)
	return m
}

// Other programs find headers under their own names, and values as they are. No header has
// a meaning to the server.
func TestStoredHeaders(t *testing.T) {
	t.Parallel()
	type headers = backend.Headers
	version := backend.Header{Name: "ce-specversion", Value: "1.0"}
	for name, row := range map[string]struct{ in, want headers }{
		"plain":            {headers{{Name: "traceparent", Value: "00-1-1-01"}, {Name: "X-Tenant", Value: "a b%2Fé"}}, headers{{Name: "traceparent", Value: "00-1-1-01"}, {Name: "X-Tenant", Value: "a b%2Fé"}}},
		"of the server":    {headers{{Name: "Nats-Rollup", Value: "all"}, {Name: "status", Value: "503"}}, headers{{Name: "h-Nats-Rollup", Value: "all"}, {Name: "h-status", Value: "503"}}},
		"of our protocol":  {headers{{Name: "h-a", Value: "1"}, {Name: "eventbus-escaped", Value: "1"}, {Name: "ce-Type", Value: "b"}}, headers{{Name: "h-h-a", Value: "1"}, {Name: "h-eventbus-escaped", Value: "1"}, {Name: "h-ce-Type", Value: "b"}}},
		"in any case":      {headers{{Name: "Traceparent", Value: "a"}, {Name: "Content-Type", Value: "b"}}, headers{{Name: "h-Traceparent", Value: "a"}, {Name: "h-Content-Type", Value: "b"}}},
		"not kept by NATS": {headers{{Name: "a", Value: " b\r\n%"}, {Name: "a b", Value: "c"}, {Name: "c", Value: "\xff"}}, headers{{Name: "h-a", Value: "%20b%0D%0A%25"}, {Name: "h-a%20b", Value: "c"}, {Name: "h-c", Value: "%FF"}}},
		"of CloudEvents":   {headers{version, {Name: "ce-subject", Value: "a%2Fb é"}}, headers{version, {Name: "ce-subject", Value: "a%2Fb é"}}},
		"escaped":          {headers{version, {Name: "ce-subject", Value: "50% "}}, headers{version, {Name: "ce-subject", Value: "50%25%20"}}},
		"without version":  {headers{{Name: "ce-subject", Value: "a%2Fb"}}, headers{{Name: "ce-subject", Value: "a%252Fb"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := append(headers{{Name: "ce-id", Value: "1"}}, row.want...)
			if name == "escaped" {
				want = append(headers{{Name: "eventbus-escaped", Value: "ce-"}}, want...)
			}
			require.Equal(t, want, writeHeader(nil, &backend.Message{ID: "1", Headers: row.in}, ""))
		})
	}
}

// Messages of other programs arrive as they were published. Well-known names are read in any
// letter case, and a name never occurs twice.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	const stored = "2025-11-24T16:00:00.000000005Z"
	timed := backend.Header{Name: "ce-time", Value: stored}
	for name, row := range map[string]struct {
		in   natsgo.Header
		want backend.Message
	}{
		"none":               {nil, backend.Message{ID: "bus=orders/17/1764000000000000005", Headers: backend.Headers{timed}}},
		"message ID":         {natsgo.Header{"Nats-Msg-Id": {"m%201"}}, backend.Message{ID: "m%201", Headers: backend.Headers{timed}}},
		"trace":              {natsgo.Header{"Traceparent": {"a"}}, backend.Message{ID: "bus=orders/17/1764000000000000005", Headers: backend.Headers{{Name: "traceparent", Value: "a"}, timed}}},
		"trace twice":        {natsgo.Header{"Traceparent": {"a"}, "traceparent": {"b"}, "ce-id": {"1"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "traceparent", Value: "b"}}}},
		"content type":       {natsgo.Header{"Content-Type": {"text/plain"}, "ce-id": {"1"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "ce-datacontenttype", Value: "text/plain"}}}},
		"content types":      {natsgo.Header{"Content-Type": {"b"}, "content-type": {"a"}, "ce-id": {"1"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "ce-datacontenttype", Value: "a"}}}},
		"CloudEvent":         {natsgo.Header{"ce-id": {"a%2Fb"}, "ce-specversion": {"1.0"}, "ce-subject": {"50%"}}, backend.Message{ID: "a%2Fb", Headers: backend.Headers{{Name: "ce-specversion", Value: "1.0"}, {Name: "ce-subject", Value: "50%"}, timed}}},
		"as in HTTP":         {natsgo.Header{"Ce-Id": {"1%41"}, "Ce-Specversion": {"1.0"}, "Ce-Time": {"t"}, "Ce-Partitionkey": {"k"}}, backend.Message{ID: "1%41", Key: "k", Headers: backend.Headers{{Name: "ce-specversion", Value: "1.0"}, {Name: "ce-time", Value: "t"}}}},
		"two cases":          {natsgo.Header{"Ce-Id": {"2"}, "CE-ID": {"1"}, "Ce-Type": {"c"}, "ce-type": {"d"}, "Ce-Key": {"a"}, "CE-KEY": {"b"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "ce-key", Value: "a"}, {Name: "ce-type", Value: "d"}}}},
		"bare percents":      {natsgo.Header{"ce-id": {"%"}, "h-a": {"%zz"}, "h-%1": {"b"}, "x": {"%"}}, backend.Message{ID: "%", Headers: backend.Headers{{Name: "h-a", Value: "%zz"}, {Name: "h-%1", Value: "b"}, {Name: "x", Value: "%"}}}},
		"of the server":      {natsgo.Header{"Nats-Sequence": {"1"}, "nats-x": {"1"}, "ce-id": {""}}, backend.Message{}},
		"of versions before": {natsgo.Header{"ce-id": {"%20a"}, "ce-type": {"b%25"}, "h-traceparent": {"%C3%A9"}, "h-X-a%20b": {"%20"}}, backend.Message{ID: " a", Headers: backend.Headers{{Name: "ce-type", Value: "b%"}, {Name: "traceparent", Value: "é"}, {Name: "X-a b", Value: " "}}}},
		"stored twice":       {natsgo.Header{"ce-id": {"1", "2"}, "h-ce-id": {"own"}, "ce-type": {"a"}, "h-ce-type": {"b"}, "a": {"1"}, "h-a": {"2"}, "h-Nats-Sequence": {"3"}, "Nats-Sequence": {"4"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "ce-id", Value: "own"}, {Name: "ce-type", Value: "a"}, {Name: "a", Value: "1"}, {Name: "Nats-Sequence", Value: "3"}}}},
		"escaped by us":      {natsgo.Header{"ce-id": {"%20"}, "ce-specversion": {"1.0"}, "eventbus-escaped": {"ce-"}}, backend.Message{ID: " ", Headers: backend.Headers{{Name: "ce-specversion", Value: "1.0"}}}},
		"escaped as not":     {natsgo.Header{"ce-id": {"1"}, "h-%61": {"2"}, "h-a": {"3"}}, backend.Message{ID: "1", Headers: backend.Headers{{Name: "h-%61", Value: "2"}, {Name: "a", Value: "3"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 { // maps have no order
				got := read(row.in)
				require.Equal(t, row.want.ID, got.ID)
				require.Equal(t, row.want.Key, got.Key)
				require.ElementsMatch(t, row.want.Headers, got.Headers)
			}
		})
	}
}

// A message with very many names costs no more than its size.
func TestManyForeignHeaders(t *testing.T) {
	t.Parallel()
	h := natsgo.Header{"ce-id": {"1"}}
	for i := range 50_000 {
		h["Ce-"+strconv.Itoa(i)] = []string{"a"}
	}
	require.Len(t, read(h).Headers, 50_000)
}

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
