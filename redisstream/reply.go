package redisstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A reply is what the server answered to one command, byte by byte, for a parser
// to read where it lies. Strings that are large are not among these bytes: each
// has memory of its own, which whoever parses the reply may give away.
//
// It may be go-redis that writes a reply. An error reply it takes for data; here
// it becomes the error that go-redis would have made of it, so that the client
// follows MOVED and ASK, and leaves a server that has become read-only.
type reply struct {
	raw   []byte
	large []largeString
}

// A largeString is a string of a reply, between whose length and line end there
// is nothing in the reply.
type largeString struct {
	at    int // where in the reply it would be
	value []byte
}

const (
	inline = 4 << 10 // the length of a string from which on it is large
	trust  = 1 << 20 // how much memory is made ready because a length says so
)

// Write implements [io.Writer]. go-redis writes a line at a time.
func (r *reply) Write(p []byte) (int, error) {
	if len(r.raw) == 0 && len(p) > 0 && p[0] == '-' {
		return 0, serverError(string(p[1:]))
	}
	r.raw = append(r.raw, p...)
	return len(p), nil
}

// ReadFrom implements [io.ReaderFrom], by which go-redis hands over a string and
// the end of its line, without a copy in between.
func (r *reply) ReadFrom(src io.Reader) (n int64, err error) {
	if l, ok := src.(*io.LimitedReader); ok {
		src = l.R
		if size := l.N - lineEnd; size > inline {
			value, err := readString(src, nil, size)
			n = int64(len(value))
			if err != nil {
				return n, err
			}
			r.large = append(r.large, largeString{len(r.raw), value})
		}
		start := len(r.raw)
		r.raw, err = readString(src, r.raw, l.N-n)
		l.N = 0
		return n + int64(len(r.raw)-start), err
	}
	start := len(r.raw)
	for {
		r.raw = slices.Grow(r.raw, 512)
		n, err := src.Read(r.raw[len(r.raw):cap(r.raw)])
		r.raw = r.raw[:len(r.raw)+n]
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return int64(len(r.raw) - start), err
		}
	}
}

const lineEnd = int64(len("\r\n"))

// readString appends so many bytes of src to b.
func readString(src io.Reader, b []byte, size int64) ([]byte, error) {
	for size > 0 {
		at, piece := len(b), int(min(size, max(trust, int64(len(b)))))
		b = slices.Grow(b, piece)
		n, err := io.ReadFull(src, b[at:at+piece])
		b, size = b[:at+n], size-int64(n)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// failure returns the error that the whole reply is, or nil.
func (r *reply) failure() error {
	if r.raw[0] != '-' {
		return nil
	}
	return serverError(string(r.raw[1 : len(r.raw)-int(lineEnd)]))
}

// clone returns a copy of what is not the reply's own.
func (r *reply) clone() reply { return reply{bytes.Clone(r.raw), r.large} }

// parse returns a parser of the whole reply.
func (r *reply) parse() parser { return parser{rest: r.raw, size: len(r.raw), large: r.large} }

// serverError is text as the type that go-redis gives error replies. That type
// is in a package of its own that others cannot name, but it can be inferred.
func serverError(text string) error { return like(redis.ErrNoScript, text) }

func like[T ~string](_ T, text string) T { return T(text) }

// A parser reads a reply of RESP2 from front to back. What it returns lies in the
// reply. Once something was not as expected, everything is empty, and err says so.
type parser struct {
	rest  []byte
	size  int           // of the reply
	large []largeString // those that are still to come
	err   error
}

var errMalformed = errors.New("malformed reply")

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
	}
	p.rest = nil
}

// line returns the next line's type and the rest of it.
func (p *parser) line() (kind byte, text []byte) {
	for i := 1; i < len(p.rest); i++ {
		if p.rest[i] == '\n' && p.rest[i-1] == '\r' && i > 1 {
			kind, text = p.rest[0], p.rest[1:i-1]
			p.rest = p.rest[i+1:]
			return kind, text
		}
	}
	p.fail("it ends within a line")
	return 0, nil
}

// number parses what a length or an integer has.
func (p *parser) number(text []byte) int {
	n, ok := number(text)
	if !ok {
		p.fail("%.30q is not a number", text)
	}
	return n
}

func number(text []byte) (n int, ok bool) {
	digits, negative := text, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + int(d-'0')
	}
	if negative {
		return -n, true
	}
	return n, true
}

// array returns the length of an array whose elements come next. It is -1 for
// nil.
func (p *parser) array() int {
	kind, text := p.line()
	if p.err != nil {
		return 0
	}
	if kind == '$' && string(text) == "-1" { // what Lua's false becomes
		return -1
	}
	if kind != '*' {
		p.fail("an array was expected, not %q", kind)
		return 0
	}
	n := p.number(text)
	if n > len(p.rest) { // an element has more than a byte
		p.fail("an array of %d ends too early", n)
		return 0
	}
	return max(n, -1)
}

// arrayOf is array where any other length than n is an error.
func (p *parser) arrayOf(n int) {
	if got := p.array(); p.err == nil && got != n {
		p.fail("an array of %d was expected, not of %d", n, got)
	}
}

// bulk returns the bytes of a bulk string, or of a status. It is nil for nil.
func (p *parser) bulk() []byte {
	b, _ := p.text()
	return b
}

// text is bulk that also says whether the bytes have memory of their own.
func (p *parser) text() (b []byte, own bool) {
	kind, text := p.line()
	if p.err != nil {
		return nil, false
	}
	if kind == '+' {
		return text, false
	}
	if kind != '$' {
		p.fail("a string was expected, not %q", kind)
		return nil, false
	}
	n := p.number(text)
	if n < 0 || p.err != nil {
		return nil, false
	}
	if own = len(p.large) > 0 && p.large[0].at == p.size-len(p.rest); own {
		b, p.large, n = p.large[0].value, p.large[1:], 0
	}
	if len(p.rest) < n+2 || p.rest[n] != '\r' || p.rest[n+1] != '\n' {
		p.fail("a string of %d ends too early", n)
		return nil, false
	}
	if !own {
		b = p.rest[:n:n]
	}
	p.rest = p.rest[n+2:]
	return b, own
}

// integer returns an integer.
func (p *parser) integer() int {
	kind, text := p.line()
	if p.err != nil {
		return 0
	}
	if kind != ':' {
		p.fail("an integer was expected, not %q", kind)
		return 0
	}
	return p.number(text)
}

// nested returns the error that a script has put in the place of an element, or
// nil if the element is no error and still to be read.
func (p *parser) nested() error {
	if len(p.rest) == 0 || p.rest[0] != '-' {
		return nil
	}
	_, text := p.line()
	return serverError(string(text))
}

// skip reads one element, whatever of RESP2 it is.
func (p *parser) skip() {
	for left := 1; left > 0 && p.err == nil; left-- {
		if len(p.rest) == 0 {
			p.fail("it ends too early")
			return
		}
		switch p.rest[0] {
		case '*':
			left += max(p.array(), 0)
		case '$':
			p.bulk()
		case '+', '-', ':':
			p.line()
		default:
			p.fail("an element of type %q", p.rest[0])
		}
	}
}

// end expects that nothing is left.
func (p *parser) end() error {
	if p.err == nil && len(p.rest) > 0 {
		p.fail("%d bytes are left", len(p.rest))
	}
	return p.err
}

// pairs reads an array of names and values, as XINFO returns them, and calls each
// for every name; each reads the value and returns true, or leaves it.
func (p *parser) pairs(each func(name string) bool) {
	n := p.array()
	for range n / 2 {
		if name := p.bulk(); p.err != nil || !each(string(name)) {
			p.skip()
		}
	}
}

// atoi parses numbers that come as text.
func atoi(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return n
}
