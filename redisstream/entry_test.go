package redisstream

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// encoded returns the entry of m.
func encoded(t testing.TB, m *backend.Message) string {
	t.Helper()
	return string(appendEntry(nil, m))
}

// decoded reads an entry as a source does.
func decoded(value []byte) (m backend.Message, err error) {
	var mem slab.Slab
	mem.Expect(0, 0, len(value))
	p := parser{rest: fmt.Appendf(nil, "*2\r\n$3\r\n1-0\r\n*2\r\n$5\r\nevent\r\n$%d\r\n%s\r\n", len(value), value)}
	_, err = new(entryReader).read(&p, &mem, &m, false, 1)
	return m, cmp.Or(err, p.end())
}

// Any attribute is read as it was written. For any other bytes the reader returns an
// error, or a message that can be written again.
func FuzzEntry(f *testing.F) {
	f.Add("019c2f6e", "customer-7", "ce-type", "order.placed", "x", "y", []byte(`{"order":"o-1"}`))
	f.Add("", "", "", "", "", "", []byte{})
	f.Add(":id: 1", "\\r\\n", ":key", ": ", "a:b", "c: d\\", []byte("\n\n"))
	f.Add("\r", "\n", "\x00", "\r\n", "\\", "\\0", []byte("\x00\r\n"))
	f.Add("ä€𝄞", "\xff\xfe", "名", "\xc3\x28", "\\:", ":", []byte("\n:id: 2\n\n"))
	f.Add(" ", " ", " ", " ", ":", " :", []byte(" "))
	f.Add("", "", "\n\n", "\n\n", "", "", []byte(":id: a\n:key: b\nname: value\n\npayload"))
	f.Add("", "", "", "", "", "", []byte(":other: a\n\nx"))
	f.Add("", "", "", "", "", "", []byte("a\\q: b\n\nx"))
	f.Add("", "", "", "", "", "", []byte("a\\: b\n\nx"))
	f.Fuzz(func(t *testing.T, id, key, name, value, name2, value2 string, payload []byte) {
		m := backend.Message{ID: id, Key: key, Payload: payload, Headers: backend.Headers{{Name: name, Value: value}, {Name: name2, Value: value2}}}
		got, err := decoded([]byte(encoded(t, &m)))
		require.NoError(t, err)
		requireSame(t, m, got)

		got, err = decoded(payload)
		if err != nil {
			require.ErrorIs(t, err, errUnreadable)
			require.Equal(t, string(payload), string(got.Payload), "what cannot be read is the payload")
			require.Empty(t, got.ID+got.Key)
			require.Empty(t, got.Headers)
			return
		}
		again, err := decoded([]byte(encoded(t, &got)))
		require.NoError(t, err)
		requireSame(t, got, again)
	})
}

func requireSame(t *testing.T, want, got backend.Message) {
	t.Helper()
	require.Equal(t, want.ID, got.ID)
	require.Equal(t, want.Key, got.Key)
	require.Equal(t, len(want.Headers), len(got.Headers))
	for i := range want.Headers {
		require.Equal(t, want.Headers[i], got.Headers[i])
	}
	require.Equal(t, string(want.Payload), string(got.Payload))
}

// An entry is written as its documentation shows it, for a reader with redis-cli.
func TestEntryIsReadable(t *testing.T) {
	t.Parallel()
	m := backend.Message{
		ID: "019c", Key: "customer-7", Payload: []byte(`{"order":"o-1"}`),
		Headers: backend.Headers{{Name: "ce-type", Value: "order.placed"}, {Name: "a:b", Value: "two\nlines \\ \r"}, {Name: "", Value: ""}},
	}
	require.Equal(t, ":id: 019c\n:key: customer-7\nce-type: order.placed\na\\:b: two\\nlines \\\\ \\r\n\\0: \n\n{\"order\":\"o-1\"}", encoded(t, &m))
}

func appendEntry(to []byte, m *backend.Message) []byte {
	return append(appendHead(to, m), m.Payload...)
}

// A program that changes a payload changes nothing else, and a change of an attribute does
// not change a payload.
func TestPayloadIsApart(t *testing.T) {
	t.Parallel()
	const events = 500
	s := &source{config: backend.Config{Topic: "orders"}}
	ds, err := read(s, typicalReply(events))
	require.NoError(t, err)
	require.Len(t, ds, events)
	want := typical()
	for i := range ds {
		m := &ds[i].Message
		require.Equal(t, want.Payload, m.Payload, "payload %d", i)
		all := append(m.Payload, "what is next"...)
		for k := range all {
			all[k] = '!'
		}
		for k := range m.Payload {
			m.Payload[k] = '!'
		}
	}
	for i := range ds {
		m := &ds[i].Message
		require.Equal(t, fmt.Sprintf("01795243593723-%020d", i), m.Position)
		require.Equal(t, want.ID+want.Key, m.ID+m.Key)
		require.Equal(t, want.Headers, m.Headers)
		require.NotContains(t, string(m.Payload), "what is next")
	}
}

func TestPositionsAreIDsWithLeadingZeros(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"1-0":                    "00000000000001-00000000000000000000",
		"1795243593723-0":        "01795243593723-00000000000000000000",
		"1795243593723-17":       "01795243593723-00000000000000000017",
		"99999999999999-17":      "99999999999999-00000000000000000017",
		"0-18446744073709551615": "00000000000000-18446744073709551615",
		"100000000000000-1":      "a100000000000000-00000000000000000001",
		"1795243593723000-17":    "b1795243593723000-00000000000000000017",

		"18446744073709551615-18446744073709551615": "f18446744073709551615-18446744073709551615",
	} {
		got := position(new(slab.Slab), []byte(id))
		require.Equal(t, want, got, id)
		require.NoError(t, checkPosition(got), id)
	}
}

func TestWhatIsNoPositionIsRefused(t *testing.T) {
	t.Parallel()
	good := "01795243593723-00000000000000000000"
	require.NoError(t, checkPosition(good))
	require.NoError(t, checkPosition("1795243593723000-00000000000000000000"), "earlier versions wrote no letter")
	for _, bad := range []string{
		"", "-", "0", "$", "1-0", "00000000000000000007", good + "0", good[1:], strings.Replace(good, "-", "0", 1),
		"(" + good[1:], " " + good[1:], good[:20] + "x" + good[21:], good[:34] + "\n", "01795243593723-18446744073709551616",
		"01795243593723-99999999999999999999", "0179524359372-000000000000000000000", "+1795243593723-00000000000000000000",
		"a" + good, "a1795243593723000-00000000000000000000", "ab1795243593723000-00000000000000000000",
		"f18446744073709551616-00000000000000000000", "g179524359372300000000-00000000000000000000",
	} {
		require.Error(t, checkPosition(bad), "%q", bad)
	}
	require.Less(t, len(checkPosition(strings.Repeat("x", 1<<20)).Error()), 200, "an error does not show all of it")
}

// Positions compare as strings in the same order as their ids compare as numbers.
func TestPositionsAreOrderedAsTheirIDs(t *testing.T) {
	t.Parallel()
	millis := func() uint64 { return rand.Uint64() >> rand.IntN(64) }
	serial := func() uint64 { return rand.Uint64() >> rand.IntN(64) }
	for range 20_000 {
		a, b := [2]uint64{millis(), serial()}, [2]uint64{millis(), serial()}
		if rand.IntN(2) == 0 {
			b[0] = a[0]
		}
		if rand.IntN(10) == 0 {
			a[1], b[1] = math.MaxUint64, math.MaxUint64-1
		}
		of := func(id [2]uint64) string {
			return position(new(slab.Slab), fmt.Appendf(nil, "%d-%d", id[0], id[1]))
		}
		less := a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
		require.Equal(t, less, of(a) < of(b), "%v %v", a, b)
	}
}
