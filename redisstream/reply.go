package redisstream

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A reply has the bytes of the server's answer to one command. go-redis writes them, and a
// parser reads them in place. go-redis passes on an error reply as data too, so Write returns
// it as the error that go-redis would have made of it. By this error go-redis follows MOVED
// and ASK, and leaves a server that has become read-only.
type reply struct{ raw []byte }

const (
	trust     = 1 << 20 // how much memory is allocated for an announced length, before the bytes arrive
	keepReply = 1 << 20 // the largest memory that is kept for the next reply
	keepIdle  = 4 << 10 // the same, if the last reply used less than 1/8 of it
)

// next returns an empty reply, with the memory of the last one unless it is too large.
func (r *reply) next() reply {
	if size := cap(r.raw); size > keepReply || size > keepIdle && len(r.raw) < size/8 {
		return reply{}
	}
	return reply{r.raw[:0]}
}

// Write implements [io.Writer]. go-redis writes a line at a time.
func (r *reply) Write(p []byte) (int, error) {
	if len(r.raw) == 0 && len(p) > 0 && p[0] == '-' {
		return 0, serverError(string(p[1:]))
	}
	r.raw = append(r.raw, p...)
	return len(p), nil
}

// ReadFrom implements [io.ReaderFrom], by which go-redis passes on a string without a copy.
func (r *reply) ReadFrom(src io.Reader) (n int64, err error) {
	l, ok := src.(*io.LimitedReader)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	for l.N > 0 && err == nil {
		at, piece := len(r.raw), int(min(l.N, max(trust, int64(len(r.raw)))))
		r.raw = slices.Grow(r.raw, piece)
		var k int
		k, err = io.ReadFull(l.R, r.raw[at:at+piece])
		r.raw, n, l.N = r.raw[:at+k], n+int64(k), l.N-int64(k)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// serverError is an error reply as the type that go-redis gives it. That type is in an
// internal package and cannot be named elsewhere, but it can be inferred.
func serverError(text string) error { return like(redis.ErrNoScript, plain(text)) }

func like[T ~string](_ T, text string) T { return T(text) }

// A parser reads a reply of RESP2 from front to back. The bytes it returns lie in the
// reply. After an unexpected byte it returns empty values, and err says why.
type parser struct {
	rest []byte
	err  error
}

var errMalformed = errors.New("malformed reply")

func (p *parser) fail(wanted string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s at %.30q", errMalformed, wanted, p.rest)
	}
	p.rest = nil
}

// line returns the type and the text of the next line. A type that is not in kinds fails p.
func (p *parser) line(kinds string) (kind byte, text []byte) {
	if len(p.rest) > 0 && strings.IndexByte(kinds, p.rest[0]) >= 0 {
		for i := 2; i < len(p.rest); i++ {
			if p.rest[i] == '\n' && p.rest[i-1] == '\r' {
				kind, text = p.rest[0], p.rest[1:i-1]
				p.rest = p.rest[i+1:]
				return kind, text
			}
		}
	}
	p.fail("none of " + kinds)
	return 0, nil
}

// number parses the text of a length or an integer.
func (p *parser) number(text []byte) (n int) {
	digits := text
	if len(text) > 0 && text[0] == '-' {
		digits = text[1:]
	}
	ok := len(digits) > 0 && len(digits) <= 18
	for _, d := range digits {
		ok = ok && d >= '0' && d <= '9'
		n = n*10 + int(d) - '0'
	}
	if !ok {
		p.fail("no number")
		return 0
	}
	if len(digits) < len(text) {
		return -n
	}
	return n
}

// array returns the length of an array whose elements come next. It is -1 for nil, which
// is also the reply to Lua's false.
func (p *parser) array() int {
	kind, text := p.line("*$")
	if p.err != nil || kind == '$' && string(text) == "-1" {
		return -1
	}
	n := p.number(text)
	if kind == '$' || n > len(p.rest) { // an element has more than a byte
		p.fail("no array")
		return -1
	}
	return max(n, -1)
}

// arrayOf reads the length of an array and fails p unless it is n.
func (p *parser) arrayOf(n int) {
	if p.array() != n {
		p.fail("an array of another length")
	}
}

// bulk returns the bytes of a bulk string, or of a status. It is nil for nil.
func (p *parser) bulk() []byte {
	kind, text := p.line("$+")
	if kind != '$' {
		return text
	}
	n := p.number(text)
	if n < 0 || p.err != nil {
		return nil
	}
	if len(p.rest) < n+2 || p.rest[n] != '\r' || p.rest[n+1] != '\n' {
		p.fail("a string that ends too early")
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n+2:]
	return b
}

// integer returns an integer.
func (p *parser) integer() int {
	_, text := p.line(":")
	if p.err != nil {
		return 0
	}
	return p.number(text)
}

// nested returns the error that a script has put in place of an element. It returns nil if
// the next element is no error and still to be read.
func (p *parser) nested() error {
	if len(p.rest) == 0 || p.rest[0] != '-' {
		return nil
	}
	_, text := p.line("-")
	return serverError(string(text))
}

// end requires that nothing is left.
func (p *parser) end() error {
	if len(p.rest) > 0 {
		p.fail("more than was expected")
	}
	return p.err
}
