package nats

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// readBoth reads headers as a tap leaves them, and requires that they are the same
// as those that the client library has read.
func readBoth(t *testing.T, text string) (backend.Message, error) {
	t.Helper()
	var want, got backend.Message
	h, _ := natsgo.DecodeHeadersMsg([]byte(text)) // what it cannot read has none
	var mem, mem2 slab.Slab
	errWant, err := readHeader(&mem, &want, h), readText(&mem2, &got, text)
	require.Equal(t, errWant == nil, err == nil, "%q: %v, want %v", text, err, errWant)
	if err == nil {
		require.Equal(t, []string{want.ID, want.Key}, []string{got.ID, got.Key}, "%q", text)
		require.ElementsMatch(t, want.Headers, got.Headers, "%q", text)
	}
	return got, err
}

// FuzzHeaderText looks for headers that are read in another way than those that
// the client library has read.
func FuzzHeaderText(f *testing.F) {
	f.Add("NATS/1.0\r\nce-id: 1\r\nce-partitionkey: k\r\nce-type: a\r\nh-a%20b: %41\r\nother: x\r\n\r\n")
	f.Add("NATS/1.0\r\nce-id:1\nce-id: 2\r\nce-type:\r\n: a\r\n\r\nce-source: late\r\n\r\n")
	f.Add("NATS/1.0\r\nce-id: 1\r\nno header\r\n\r\n")
	f.Add("NATS/1.0\r\nce-id: 1\r\nce-type: half\r\n")
	f.Add("NATS/1.0\r\nce-id: %\r\n\r\n")
	f.Add("NATS/1.0\r\nce-id: 1\r\nh-a: 1\r\nh-a: %\r\n\r\n")
	f.Add("NATS/1.0 409 x y\r\nce-id: 1\r\n\r\n")
	f.Add("NATS/1.0 4\nce-id: 1\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		if isAmbiguous(text) {
			t.Skip("the client library forgets which of two that are escaped differently was the first")
		}
		_, _ = readBoth(t, text)
	})
}

// isAmbiguous reports whether two names in a text are escaped differently, and the
// same.
func isAmbiguous(text string) bool {
	h, _ := natsgo.DecodeHeadersMsg([]byte(text))
	seen := map[string]bool{}
	for name := range h {
		own, isForeign := strings.CutPrefix(name, foreign)
		if isForeign {
			own, _ = unescape(own)
		}
		if seen[own] {
			return true
		}
		seen[own] = true
	}
	return false
}

// Of two headers with the same name the first counts, whatever the second is.
func TestFirstHeaderCounts(t *testing.T) {
	t.Parallel()
	a := backend.Headers{{Name: "a", Value: "1"}}
	for lines, want := range map[string]backend.Message{
		"ce-id: 1\r\nce-id: %\r\n":                       {ID: "1"},
		"ce-id:\r\nce-id: 2\r\n":                         {},
		"ce-partitionkey: k\r\nce-partitionkey: %zz\r\n": {Key: "k"},
		"h-a: 1\r\nh-a: 100%\r\n":                        {Headers: a},
		"h-a: 1\r\nother: %\r\nh-a: 2\r\n":               {Headers: a},
		"ce-type: 1\r\nce-type: %\r\n":                   {Headers: backend.Headers{{Name: "ce-type", Value: "1"}}},
		"ce-id: 1\r\nh-ce-id: 2\r\nh-ce-id: %\r\n":       {ID: "1", Headers: backend.Headers{{Name: "ce-id", Value: "2"}}},
	} {
		got, err := readBoth(t, "NATS/1.0\r\n"+lines+"\r\n")
		require.NoError(t, err, "%q", lines)
		require.Equal(t, want, got, "%q", lines)
	}
	_, err := readBoth(t, "NATS/1.0\r\nh-a: %\r\nh-a: 1\r\n\r\n")
	require.Error(t, err)
}

// What does not begin as headers do has none.
func TestHeadersBeginWithTheirVersion(t *testing.T) {
	t.Parallel()
	for first, begins := range map[string]bool{
		"NATS/1.0": true, "NATS/1.0 503": true, "NATS/1.0503": true, "NATS/1.0 409 Consumer Deleted": true,
		"": false, "ce-type: x": false, "NATS/9.9": false, "nats/1.0": false, "NATS/1.0 ": false, "NATS/1.0 50": false, "NATS/1.0 5  ": false,
	} {
		got, err := readBoth(t, first+"\r\nce-id: 1\r\n\r\n")
		require.NoError(t, err, "%q", first)
		require.Equal(t, begins, got.ID == "1", "%q", first)
	}
}

// Another program's message may have thousands of headers: reading them takes as
// long as they are, not that to the square.
func TestThousandsOfHeaders(t *testing.T) {
	const times = 30
	few, thousands := thousandsOfHeaders(1_000), thousandsOfHeaders(1_000*times)
	read := func(text string, times int) (took time.Duration) {
		for i := range 5 { // a machine may be busy for a while
			began := time.Now()
			for range times {
				var got backend.Message
				require.NoError(t, readText(&slab.Slab{}, &got, text))
				require.Len(t, got.Headers, strings.Count(text, ":")-5)
				require.Equal(t, backend.Header{Name: "000007", Value: "7"}, got.Headers[7])
			}
			if lasted := time.Since(began); i == 0 || lasted < took {
				took = lasted
			}
		}
		return took
	}
	require.Less(t, read(thousands, 1), times/3*read(few, times))
}

// thousandsOfHeaders is the text of so many, some of them twice.
func thousandsOfHeaders(count int) string {
	var text strings.Builder
	text.WriteString("NATS/1.0\r\n")
	for i := range count {
		fmt.Fprintf(&text, "h-%06d:%d\r\n", i, i)
	}
	for _, i := range []int{0, many - 1, many, many + 1, count - 1} {
		fmt.Fprintf(&text, "h-%06d:%%\r\n", i)
	}
	text.WriteString("\r\n")
	return text.String()
}

// Another program's message may have lines that are no headers of ours, or none at
// all: for them there is no memory.
func TestLinesThatAreNoHeaders(t *testing.T) {
	const messages = 200
	for name, text := range map[string]string{
		"behind the end": "NATS/1.0\r\n\r\n" + strings.Repeat("\n", 60_000),
		"of another":     "NATS/1.0\r\n" + strings.Repeat("x:\n", 20_000) + "\r\n",
		"the same":       "NATS/1.0\r\n" + strings.Repeat("h-:\n", 15_000) + "\r\n",
	} {
		msgs := make([]arrival, messages)
		for i := range msgs {
			msgs[i] = arrival{reply: "$JS.ACK.bus=orders.billing.1.17.17.1795243593723000000.0", text: text}
		}
		s := &source{config: backend.Config{Topic: "orders", Lease: time.Minute}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ds := s.deliveries(nil, msgs, messages, time.Now())
		runtime.ReadMemStats(&after)
		require.Len(t, ds, messages)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), name)
	}
}
