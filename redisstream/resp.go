package redisstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// A reply holds the bytes of the reply to one command. go-redis writes them through Write and
// ReadFrom, and a parser reads them in place. go-redis passes error replies to Write as well;
// Write returns the error that go-redis itself would have made, because go-redis needs it to
// follow MOVED and ASK, and to leave a server that has become read-only.
type reply struct{ raw []byte }

const (
	minGrow      = 16      // least memory for the next bytes of a string
	maxKeptReply = 1 << 20 // larger memory is not kept for the next reply
	maxIdleReply = 4 << 10 // nor is larger memory of which the last reply used less than 1/8
)

// next returns an empty reply. It reuses the memory of r, unless that is too large by the
// constants above.
func (r *reply) next() reply {
	if size := cap(r.raw); size > maxKeptReply || size > maxIdleReply && len(r.raw) < size/8 {
		return reply{}
	}
	return reply{r.raw[:0]}
}

// Write implements [io.Writer]. go-redis calls it for each line of a reply. For an error reply
// it returns the error.
func (r *reply) Write(p []byte) (int, error) {
	if len(r.raw) == 0 && len(p) > 0 && p[0] == '-' {
		return 0, serverError(string(p[1:]))
	}
	r.raw = append(r.raw, p...)
	return len(p), nil
}

// ReadFrom implements [io.ReaderFrom]. go-redis calls it for the bytes of a string, which saves
// a copy. The memory grows as bytes arrive, because the announced length may be wrong.
func (r *reply) ReadFrom(src io.Reader) (n int64, err error) {
	for err == nil {
		r.raw = slices.Grow(r.raw, minGrow)
		var k int
		k, err = src.Read(r.raw[len(r.raw):cap(r.raw)])
		r.raw, n = r.raw[:len(r.raw)+k], n+int64(k)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// serverError returns an error reply as the type that go-redis uses for it. Code outside
// go-redis cannot name that type, because it is in an internal package, but the compiler can
// infer it.
func serverError(text string) error { return like(redis.ErrNoScript, stripScriptInfo(text)) }

func like[T ~string](_ T, text string) T { return T(text) }

// A parser reads a reply in the RESP2 format, element by element. The bytes that it returns are
// part of the reply. After an unexpected byte, or an error that a script has put into an array,
// all methods return empty values, and err has the reason.
type parser struct {
	rest []byte
	err  error
}

var crlf = []byte("\r\n")

var errMalformed = fmt.Errorf("%w: malformed reply", backend.ErrUnknownOutcome)

func (p *parser) fail(wanted string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s at %.30q", errMalformed, wanted, p.rest)
	}
	p.rest = nil
}

// line reads a line and returns its type and text. It calls fail unless kinds contains the type.
func (p *parser) line(kinds string) (kind byte, text []byte) {
	end := bytes.IndexByte(p.rest, '\n')
	if end < 2 || p.rest[end-1] != '\r' {
		p.fail("no line")
		return 0, nil
	}
	kind, text = p.rest[0], p.rest[1:end-1]
	switch {
	case strings.IndexByte(kinds, kind) >= 0:
		p.rest = p.rest[end+1:]
		return kind, text
	case kind == '-' && p.err == nil:
		p.err = classifyReply(string(text))
	}
	p.fail("none of " + kinds)
	return 0, nil
}

// number parses the text of a length or an integer.
func (p *parser) number(text []byte) int {
	n, err := strconv.Atoi(string(text))
	if err != nil {
		p.fail("no number")
		return 0
	}
	return n
}

// array reads the beginning of an array and returns its length; the elements follow. It returns
// -1 for nil, which is also what Redis sends for false in Lua.
func (p *parser) array() int {
	kind, text := p.line("*$")
	if p.err != nil || kind == '$' && string(text) == "-1" {
		return -1
	}
	n := p.number(text)
	if kind == '$' || n > len(p.rest) { // each element takes more than one byte
		p.fail("no array")
		return -1
	}
	return max(n, -1)
}

// arrayOf reads the beginning of an array, and calls fail unless it has n elements.
func (p *parser) arrayOf(n int) {
	if p.array() != n {
		p.fail("an array of another length")
	}
}

// bulk reads a bulk string or a status and returns its bytes, or nil for nil.
func (p *parser) bulk() []byte {
	kind, text := p.line("$+")
	if kind != '$' {
		return text
	}
	n := p.number(text)
	if n < 0 || p.err != nil {
		return nil
	}
	if n > len(p.rest)-len(crlf) || !bytes.HasPrefix(p.rest[n:], crlf) {
		p.fail("a string that ends too early")
		return nil
	}
	text, p.rest = p.rest[:n:n], p.rest[n+len(crlf):]
	return text
}

// integer reads an integer.
func (p *parser) integer() int {
	_, text := p.line(":")
	return p.number(text)
}

// end returns err. If part of the reply was not read, it calls fail first.
func (p *parser) end() error {
	if len(p.rest) > 0 {
		p.fail("more than was expected")
	}
	return p.err
}
