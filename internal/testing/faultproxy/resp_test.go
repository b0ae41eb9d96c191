package faultproxy

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// read feeds a stream in pieces of size bytes and returns the names.
func read(stream string, size int) (names []string, r *requests) {
	c := &counts{commands: map[string]*atomic.Int64{}}
	r = &requests{counters: c, named: func(name []byte) { names = append(names, string(name)) }}
	for len(stream) > 0 {
		n := min(size, len(stream))
		r.feed([]byte(stream[:n]))
		stream = stream[n:]
	}
	return names, r
}

func TestRequestsOverBorders(t *testing.T) {
	stream := "*1\r\n$4\r\nping\r\n" +
		"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$26\r\n*1\r\n$4\r\nPING\r\nget x\r\n$$\r\n*\r\n" +
		"*0\r\n\r\n" +
		"*2\r\n$0\r\n\r\n$1\r\nx\r\n" +
		"xadd s * k v\r\nQUIT\r\n" +
		"*1\r\n$40\r\n" + strings.Repeat("n", 40) + "\r\n"
	want := []string{"PING", "SET", "", "XADD", "QUIT", strings.Repeat("N", maxName)}
	for size := 1; size <= len(stream); size++ {
		names, r := read(stream, size)
		require.Equal(t, want, names, "in pieces of %d", size)
		require.False(t, r.lost)
		require.Equal(t, between, r.state)
	}
}

func TestRequestsOfAnotherLanguage(t *testing.T) {
	for _, stream := range []string{"\x16\x03\x01", "*x\r\n", "*1\r\nPING\r\n", "*1\r\n$-1\r\n", "{}", "*99999999999999999999\r\n"} {
		names, r := read(stream, 1)
		require.Empty(t, names, stream)
		require.True(t, r.lost, stream)
	}
}

func TestRepliesOverBorders(t *testing.T) {
	replied := []string{
		"+OK\r\n", "-ERR no\r\n", ":-1\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\n+OK\r\n\r\n", "*0\r\n", "*-1\r\n",
		"*2\r\n*1\r\n$1\r\nx\r\n*-1\r\n", "%1\r\n+a\r\n*2\r\n:1\r\n:2\r\n", "_\r\n", ",1.5\r\n", "#t\r\n",
		"|1\r\n+ttl\r\n:1\r\n$1\r\nx\r\n", "=7\r\ntxt:abc\r\n", "~1\r\n(12\r\n",
	}
	pushed := ">2\r\n+message\r\n$1\r\nx\r\n"
	stream := strings.Join(replied, pushed)
	for size := 1; size <= len(stream); size++ {
		var r replies
		ends := map[int]bool{}
		for at := 0; at < len(stream); {
			piece := stream[at:min(at+size, len(stream))]
			for len(piece) > 0 {
				n, ended := r.next([]byte(piece))
				require.False(t, r.lost, "at %d of %q", at, stream)
				at, piece = at+n, piece[n:]
				if ended {
					ends[at] = r.push
				}
			}
		}
		want, at := map[int]bool{}, 0
		for i, reply := range replied {
			if i > 0 {
				at += len(pushed)
				want[at] = true
			}
			at += len(reply)
			want[at] = false
		}
		require.True(t, maps.Equal(want, ends), "in pieces of %d: got %v, want %v", size, ends, want)
	}
}

func TestRepliesOfAnotherLanguage(t *testing.T) {
	for _, stream := range []string{"INFO {}\r\n", "*x\r\n", "$99999999999999999999\r\n", "*1\r\nx"} {
		var r replies
		for b := []byte(stream); len(b) > 0 && !r.lost; {
			n, _ := r.next(b)
			b = b[n:]
		}
		require.True(t, r.lost, stream)
	}
}
