package redisstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A speech is a server in memory that answers each XREADGROUP with the same bytes, and
// then closes the connection.
type speech struct {
	text    []byte
	pending bytes.Buffer
}

func (s *speech) Write(p []byte) (int, error) {
	switch {
	case bytes.Contains(p, []byte("xreadgroup")):
		s.pending.Write(s.text)
	case bytes.Contains(p, []byte("hello")):
		s.pending.WriteString("-ERR unknown command\r\n")
	default:
		s.pending.WriteString("+OK\r\n")
	}
	return len(p), nil
}

func (s *speech) Read(p []byte) (int, error)       { return s.pending.Read(p) }
func (s *speech) Close() error                     { return nil }
func (s *speech) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *speech) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *speech) SetDeadline(time.Time) error      { return nil }
func (s *speech) SetReadDeadline(time.Time) error  { return nil }
func (s *speech) SetWriteDeadline(time.Time) error { return nil }

// speaker is a client of a speech.
func speaker(t testing.TB, text []byte) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return &speech{text: text}, nil },
		Protocol: 2, MaxRetries: -1, DisableIdentity: true,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// An entry is the part of a reply that becomes a message.
type entry struct {
	id, value []byte
	err       error
}

// ours reads text, a reply of XREADGROUP, through a session, as a source does.
func ours(t testing.TB, text []byte) (entries []entry, err error) {
	b, err := New(speaker(t, text), Options{})
	require.NoError(t, err)
	w := newSession(&b.broker, time.Second)
	defer w.end()
	c := &call{args: []any{"xreadgroup", "group", "g", "c", "streams", "s", ">"}}
	w.send(t.Context(), c)
	if c.err != nil {
		return nil, c.err
	}
	p := parser{rest: c.reply.raw}
	if p.array() > 0 {
		p.arrayOf(2)
		p.bulk()
		for range p.array() {
			p.arrayOf(2)
			e := entry{id: p.bulk()}
			e.value, e.err = readFields(&p)
			entries = append(entries, e)
		}
	}
	// A source makes the same number of deliveries from it.
	again := parser{rest: c.reply.raw}
	ds := new(source).newDeliveries(&again)
	require.Equal(t, p.end() == nil, again.end() == nil)
	if p.err != nil {
		return nil, p.err
	}
	require.Equal(t, len(entries), len(ds))
	return entries, nil
}

// theirs reads text as go-redis reads the reply of a command that it does not know.
func theirs(t testing.TB, text []byte) (any, error) {
	return speaker(t, text).Do(t.Context(), "xreadgroup", "group", "g", "c", "streams", "s", ">").Result()
}

// A row is an entry in a value of go-redis.
type row struct {
	id     string
	gone   bool
	fields []string
}

// rows returns the entries of a value with the shape of a reply of XREADGROUP.
func rows(v any) (list []row, ok bool) {
	streams, ok := v.([]any)
	if !ok || len(streams) > 1 {
		return nil, false
	}
	for _, s := range streams {
		s, ok := s.([]any)
		if !ok || len(s) != 2 || !isText(s[0]) {
			return nil, false
		}
		entries, ok := s[1].([]any)
		if !ok && s[1] != nil {
			return nil, false
		}
		for _, e := range entries {
			e, ok := e.([]any)
			if !ok || len(e) != 2 || !isText(e[0]) {
				return nil, false
			}
			fields, ok := e[1].([]any)
			if !ok && e[1] != nil {
				return nil, false
			}
			r := row{id: text(e[0]), gone: e[1] == nil}
			for _, f := range fields {
				if !isText(f) {
					return nil, false
				}
				r.fields = append(r.fields, text(f))
			}
			list = append(list, r)
		}
	}
	return list, true
}

// isText also allows nil, which a parser reads as an empty string.
func isText(v any) bool {
	_, ok := v.(string)
	return ok || v == nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// resp returns v as Redis writes it.
func resp(v any) string {
	switch v := v.(type) {
	case string:
		return "$" + strconv.Itoa(len(v)) + "\r\n" + v + "\r\n"
	case []any:
		out := "*" + strconv.Itoa(len(v)) + "\r\n"
		for _, e := range v {
			out += resp(e)
		}
		return out
	case nil:
		return "*-1\r\n"
	}
	return "neither"
}

var absurd = regexp.MustCompile(`[*$%~>=!|][+-]?\d{6,}`)

// The source reads the same entries as go-redis from any answer, or both refuse it. The
// source may also refuse forms that Redis never writes. These are types of RESP3, a number
// or an error in place of a string, a string that does not end with its line, an array of
// another shape. It must read every answer of the right shape that is written as Redis
// writes it.
func FuzzReply(f *testing.F) {
	entry := func(id string, fields ...any) any { return []any{id, fields} }
	reply := func(entries ...any) []byte { return []byte(resp([]any{[]any{"bus:{a}", entries}})) }
	f.Add(reply(entry("1-0", field, ":id: x\n\npayload")))
	f.Add(reply(entry("1-0", field, "\n"), entry("1-1", field, "\n\r\n\x00"), []any{"1-2", nil}))
	f.Add(reply(entry("1-0"), entry("2-0", "a", "b", "c", "d"), entry("3-0", "odd"), entry("4-0", "other", "x")))
	f.Add(reply())
	f.Add([]byte("*-1\r\n"))
	f.Add([]byte("$-1\r\n"))
	f.Add([]byte("*0\r\n"))
	f.Add([]byte("-NOGROUP No such key\r\n"))
	f.Add([]byte("*1\r\n-ERR in the middle\r\n"))
	f.Add([]byte("*1\r\n*2\r\n+bus\r\n*1\r\n*2\r\n+1-0\r\n*2\r\n+event\r\n+\r\n"))
	f.Add([]byte("*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n:7\r\n*0\r\n"))
	f.Add([]byte("*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$3\r\n1-0xx*0\r\n"))
	f.Add([]byte("%1\r\n$1\r\na\r\n*0\r\n"))
	f.Add([]byte("*1\r\n*2\r\n+\r\n*1\r\n*2\r\n+\r\n*1\r\n!0\r\n000000"))
	f.Add([]byte("*1\r\n*2\r\n=5\r\ntxt:a\r\n_\r\n"))
	f.Add([]byte("*2\r\n*2\r\n$1\r\n"))
	f.Add([]byte("$5\r\nab"))
	f.Add([]byte("\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if absurd.Match(text) || len(text) > 1<<12 {
			t.Skip("go-redis itself allocates what a length says, and recurses as deep as arrays do")
		}
		got, err := ours(t, text)
		v, theirErr := theirs(t, text)
		if errors.Is(theirErr, redis.Nil) {
			theirErr, v = nil, []any{}
		}
		want, shaped := rows(v)
		if theirErr == nil && shaped && bytes.HasPrefix(text, []byte(resp(v))) {
			require.NoError(t, err, "what Redis writes is read")
		}
		if err != nil {
			return
		}
		require.NoError(t, theirErr, "what ours reads go-redis reads")
		require.True(t, shaped, "what ours reads has the shape of entries: %#v", v)
		require.Equal(t, len(want), len(got))
		for i, e := range got {
			requireEntry(t, want[i], e)
		}
	})
}

func requireEntry(t *testing.T, want row, got entry) {
	t.Helper()
	require.Equal(t, want.id, string(got.id))
	require.Equal(t, want.gone, errors.Is(got.err, errBodyGone))
	if len(want.fields) == 2 && want.fields[0] == field {
		require.NoError(t, got.err)
		require.Equal(t, want.fields[1], string(got.value))
		return
	}
	require.Error(t, got.err)
	lines := ""
	for i := 0; i+1 < len(want.fields); i += 2 {
		lines += want.fields[i] + "=" + want.fields[i+1] + "\n"
	}
	require.Equal(t, lines, string(got.value))
}

// A parser reads arbitrary bytes without a panic, and returns no more bytes than there
// are.
func FuzzParser(f *testing.F) {
	f.Add([]byte("*4\r\n:-1\r\n:0\r\n$0\r\n\r\n*1\r\n*3\r\n$3\r\n1-0\r\n:2\r\n*2\r\n$5\r\nevent\r\n$1\r\n\n\r\n"))
	f.Add([]byte("*999999999999999999\r\n*999999999999999999\r\n"))
	f.Add([]byte("$999999999999999999\r\nabc"))
	f.Add([]byte("*-999999999999999999\r\n"))
	f.Add([]byte("$-7\r\n"))
	f.Add([]byte(":99999999999999999999\r\n"))
	f.Add([]byte("*3\r\n*3\r\n*3\r\n*3\r\n"))
	f.Add([]byte("-\r\n:\r\n"))
	f.Add([]byte("*2\r\n$4\r\nname\r\n$1\r\na\r\n*2\r\n"))
	f.Add([]byte("+\r\n-\r\n:\r\n$\r\n*\r\n"))
	f.Add([]byte("*1\r\n*3\r\n$15\r\n1700000000000-0\r\n:1\r\n*4\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nt\r\n$1\r\n\xff\r\n"))
	flat := &source{options: TopicOptions{Flat: true, FlatKey: "k", FlatType: "t"}}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, read := range []func(*parser) int{
			func(p *parser) int { return len(new(source).newDeliveries(p)) },
			func(p *parser) int { return len(new(source).deliveries(p, true)) },
			func(p *parser) int { return len(flat.deliveries(p, true)) },
			func(p *parser) int { return len(new(source).deliveries(p, false)) },
			func(p *parser) int { p.bulk(); return 0 },
		} {
			r := reply{raw: bytes.Clone(text)}
			p := parser{rest: r.raw}
			require.LessOrEqual(t, read(&p), len(text))
			if p.err != nil {
				require.True(t, errors.Is(p.err, errMalformed) || isReply(p.err), p.err)
				require.Empty(t, p.rest)
				require.Empty(t, p.bulk())
				require.Zero(t, p.integer())
			}
			require.Equal(t, string(text), string(r.raw), "a parser only reads")
		}
	})
}

// A wrong length costs no memory and causes an error.
func TestLyingLengthsAreHarmless(t *testing.T) {
	for _, text := range []string{
		"$1000000000\r\nabc", "$9223372036854775807\r\nabc", "$9223372036854775805\r\nabc", "$4611686018427387904\r\n",
		"*1\r\n*2\r\n$900000000000\r\nx", "*1000000000\r\n", "*9223372036854775807\r\n$1\r\na\r\n", "*1\r\n*2\r\n$1\r\na\r\n*888888888\r\n*2\r\n",
		"$-2\r\n", "*-2\r\n", "$99999999999999999999\r\n", "$abc\r\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ours(t, []byte(text))
		runtime.ReadMemStats(&after)
		require.Error(t, err, "%q", text)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "%q", text)
	}
}

// A reply is kept whole, however its bytes arrive from go-redis.
func TestReplyIsTheBytes(t *testing.T) {
	t.Parallel()
	var r reply
	long := strings.Repeat("0123456789", 300_000)
	for _, text := range []string{"short", long} {
		r.raw = fmt.Appendf(r.raw, "$%d\r\n", len(text))
		n, err := r.ReadFrom(&io.LimitedReader{R: strings.NewReader(text + "\r\nbehind"), N: int64(len(text)) + 2})
		require.NoError(t, err)
		require.Equal(t, int64(len(text))+2, n)
	}
	p := parser{rest: r.raw}
	require.Equal(t, "short", string(p.bulk()))
	value := p.bulk()
	require.True(t, long == string(value), "the long string is %d bytes", len(value))
	require.NoError(t, p.end())
	_, err := io.CopyN(&r, strings.NewReader("abc"), 5)
	require.ErrorIs(t, err, io.EOF)
	_, err = (&reply{}).Write([]byte("-MOVED 1 127.0.0.1:1"))
	require.True(t, redis.HasErrorPrefix(err, "MOVED"), fmt.Sprint(err))
}
