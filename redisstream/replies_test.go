package redisstream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// pieces hands out what it reads in pieces of any size.
type pieces struct {
	src    io.Reader
	random *rand.Rand
}

func (p pieces) Read(b []byte) (int, error) {
	return p.src.Read(b[:min(len(b), 1+p.random.IntN(1+p.random.IntN(3*maxWindow)))])
}

// plain makes of a reply what it was, with large strings in their places.
func (r *reply) plain() string {
	var out strings.Builder
	at := 0
	for _, l := range r.large {
		out.Write(r.raw[at:l.at])
		out.Write(l.value)
		at = l.at
	}
	out.Write(r.raw[at:])
	return out.String()
}

// Replies end where they end, however they come, and are what was sent.
func TestRepliesAreTheBytes(t *testing.T) {
	t.Parallel()
	var sent []string
	for _, size := range []int{0, 1, inline - 1, inline, inline + 1, maxWindow - 1, maxWindow, 3 * maxWindow, trust, 3*trust + 1} {
		sent = append(sent, resp(strings.Repeat("x", size)), ":7\r\n",
			resp([]any{"a", []any{strings.Repeat("\r\n", size/2), nil, []any{}, "b"}}),
			resp([]any{[]any{"1-2", []any{field, strings.Repeat("x", size)}}, []any{"1-3", []any{field, "y"}}, "behind entries"}))
	}
	sent = append(sent, "+OK\r\n", "-ERR no\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "*1\r\n-ERR inside\r\n", "-"+strings.Repeat("y", 2*maxWindow)+"\r\n")
	random := rand.New(rand.NewPCG(1, 2))
	sources := map[string]func(string) io.Reader{
		"at once":        func(s string) io.Reader { return strings.NewReader(s) },
		"byte by byte":   func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
		"in pieces":      func(s string) io.Reader { return pieces{strings.NewReader(s), random} },
		"with its end":   func(s string) io.Reader { return iotest.DataErrReader(strings.NewReader(s)) },
		"other pieces":   func(s string) io.Reader { return pieces{strings.NewReader(s), random} },
		"half at a time": func(s string) io.Reader { return iotest.HalfReader(strings.NewReader(s)) },
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			random.Shuffle(len(sent), func(i, k int) { sent[i], sent[k] = sent[k], sent[i] })
			var r replies
			src := source(strings.Join(sent, ""))
			var got []reply
			for range sent {
				one, err := r.read(src)
				require.NoError(t, err)
				got = append(got, one)
			}
			require.False(t, r.rest())
			for i, one := range got {
				require.True(t, sent[i] == one.plain(), "%.40q is %.40q", sent[i], one.plain())
				p := one.parse()
				if p.nested() == nil {
					p.skip()
				}
				require.NoError(t, p.end())
			}
			_, err := r.read(src)
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// What breaks off is no reply, wherever it does.
func TestRepliesThatBreakOff(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	whole := resp([]any{"a", strings.Repeat("x", inline+1), []any{nil, "b"}})
	for n := range len(whole) {
		var r replies
		_, err := r.read(io.MultiReader(strings.NewReader(whole[:n]), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, "after %d bytes", n)
	}
}

// What no server says is an error, and makes nobody wait for the rest.
func TestRepliesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\r\n", "$\r\n", "?1\r\n", "$5\n", "$x\r\n", "*-2\r\n", "$-2\r\n", "*9999999999999999\r\n", "*1\r\n%1\r\n", strings.Repeat("+", 2<<20),
	} {
		var r replies
		_, err := r.read(strings.NewReader(text))
		require.ErrorIs(t, err, errMalformed, "%.20q", text)
	}
}

// The memory of replies is used again, unless it is much more than was needed; that
// of large strings is nobody's but theirs.
func TestMemoryOfReplies(t *testing.T) {
	t.Parallel()
	var r replies
	read := func(text string) reply {
		r.begin()
		one, err := r.read(strings.NewReader(text))
		require.NoError(t, err)
		return one
	}
	many := make([]any, 1000)
	for i := range many {
		many[i] = strings.Repeat("x", 1000)
	}
	read(resp(many))
	size := cap(r.text)
	require.Greater(t, size, 1_000_000)
	read(resp(many))
	require.Equal(t, size, cap(r.text))
	read(":1\r\n")
	read(":1\r\n")
	require.Less(t, cap(r.text), smallReply, "after a small reply")

	many = many[:100]
	for i := range many {
		many[i] = strings.Repeat("x", 100_000)
	}
	one := read(resp(many))
	require.Len(t, one.large, len(many))
	require.Less(t, cap(r.text)+len(r.window), 2*maxWindow, "large strings are not among the bytes")
	for _, l := range one.large {
		require.Equal(t, 100_000, len(l.value))
		require.Less(t, cap(l.value), 120_000)
	}
	value := one.large[0].value
	clear(value)
	require.True(t, bytes.Count(one.large[1].value, []byte("x")) == 100_000)
}

func BenchmarkReplies(b *testing.B) {
	const events = 512
	text := typicalReply(events).raw
	var r replies
	var src bytes.Reader
	for range b.N {
		src.Reset(text)
		r.begin()
		if _, err := r.read(&src); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
}

// FuzzOwn: an entry that is read in one go is read as it is piece by piece.
func FuzzOwn(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nevent\r\n$4\r\n\nabc\r\n*2\r\n", "*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nevent\r\n$0\r\n\r\n",
		"*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nevent\r\n$-1\r\n", "*2\r\n$3\r\n1-2\r\n*-1\r\n", "*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nother\r\n$1\r\nx\r\n",
		"*2\r\n$0\r\n\r\n*2\r\n$5\r\nevent\r\n$1\r\nx\r\n", "*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nevent\r\n*1\r\nx\r\n", "*2\r\n$3\r\n1-2\r\n*2\r\n$5\r\nevent\r\n$9\r\nx\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		whole, pieces := parser{rest: reply, size: len(reply)}, parser{rest: reply, size: len(reply)}
		var got, want entry
		if !whole.own(&got) {
			require.Equal(t, reply, whole.rest, "what is not read is left")
			return
		}
		pieces.arrayOf(2)
		want.id = pieces.bulk()
		want.readFields(&pieces)
		require.NoError(t, pieces.err)
		require.Equal(t, want, got)
		require.Equal(t, pieces.rest, whole.rest)
	})
}
