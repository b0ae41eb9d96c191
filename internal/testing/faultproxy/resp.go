package faultproxy

import (
	"bytes"
	"sync/atomic"
)

// States of a request parser.
const (
	between = iota // commands
	arrayLen
	argMark
	argLen
	argument
	inline
)

const maxName = 32

// requests parses the commands of one client across chunks, and copies only names.
type requests struct {
	named    func(name []byte) // called with each name in upper case, which it must not keep
	counters *counts
	lost     bool // the traffic is not RESP; parsing has ended

	state int
	args  int64 // number of arguments still to come
	rest  int64 // the number read so far, or the bytes of the argument still to come
	first bool  // the current argument is the name

	name    [maxName]byte
	nameLen int
	known   map[string]*atomic.Int64
}

// feed parses the next bytes of the client.
func (r *requests) feed(b []byte) {
	for len(b) > 0 && !r.lost {
		switch r.state {
		case between:
			b = r.begin(b)
		case arrayLen, argLen:
			b = r.number(b)
		case argMark:
			r.lost = b[0] != '$'
			r.state, r.rest = argLen, 0
			b = b[1:]
		case argument:
			b = r.argument(b)
		case inline:
			b = r.inline(b)
		}
	}
}

// unnamed reports whether the name of the current command is still to come.
func (r *requests) unnamed() bool {
	return r.state == between || r.state == arrayLen || r.first
}

// begin parses the first byte of a command.
func (r *requests) begin(b []byte) []byte {
	r.nameLen = 0
	switch c := b[0]; {
	case c == '*':
		r.state, r.rest = arrayLen, 0
	case c == '\r' || c == '\n':
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		r.state, r.first = inline, true
		return b
	default:
		r.lost = true
	}
	return b[1:]
}

// number parses digits up to the end of the line.
func (r *requests) number(b []byte) []byte {
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9' && r.rest < 1<<40:
			r.rest = r.rest*10 + int64(c-'0')
		case c == '\r':
		case c == '\n':
			r.numbered()
			return b[i+1:]
		default:
			r.lost = true
			return nil
		}
	}
	return nil
}

// numbered sets the next state, after the parser has read a number.
func (r *requests) numbered() {
	if r.state == argLen {
		r.state = argument
		r.rest += 2 // the end of the line
		return
	}
	r.args, r.first = r.rest, true
	if r.state = argMark; r.args == 0 {
		r.state = between
	}
}

// argument skips the bytes of an argument, but keeps the name.
func (r *requests) argument(b []byte) []byte {
	n := int(min(int64(len(b)), r.rest))
	if r.first {
		r.keep(b[:min(n, int(max(0, r.rest-2)))])
	}
	r.rest -= int64(n)
	if r.rest > 0 {
		return nil
	}
	if r.first {
		r.first = false
		r.count()
	}
	r.args--
	if r.state = argMark; r.args == 0 {
		r.state = between
	}
	return b[n:]
}

// inline parses an inline command, which is one line of text without RESP lengths.
func (r *requests) inline(b []byte) []byte {
	end := bytes.IndexByte(b, '\n')
	line := b
	if end >= 0 {
		line = b[:end]
	}
	if r.first {
		word := bytes.IndexAny(line, " \r")
		if word < 0 {
			word = len(line)
		}
		r.keep(line[:word])
		if word < len(line) || end >= 0 {
			r.first = false
			r.count()
		}
	}
	if end < 0 {
		return nil
	}
	r.state = between
	return b[end+1:]
}

// keep appends to the name in upper case.
func (r *requests) keep(b []byte) {
	for _, c := range b {
		if r.nameLen == maxName {
			return
		}
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		r.name[r.nameLen] = c
		r.nameLen++
	}
}

// count counts the command whose name is complete.
func (r *requests) count() {
	name := r.name[:r.nameLen]
	n := r.known[string(name)]
	if n == nil {
		if r.known == nil {
			r.known = map[string]*atomic.Int64{}
		}
		n = r.counters.command(string(name))
		r.known[string(name)] = n
	}
	n.Add(1)
	r.named(name)
}

// replies finds the end of each reply in a server's bytes.
type replies struct {
	lost    bool
	pending int64 // number of values of this reply still to come; 0 between replies
	push    bool  // the value is a push message, not a reply

	kind   byte // the first byte of the current value; 0 between values
	number int64
	minus  bool
	skip   int64 // bytes of the bulk value still to come
}

// next parses up to the end of one reply. It returns the number of bytes, and whether the
// reply has ended.
func (r *replies) next(b []byte) (n int, ended bool) {
	size := len(b)
	if r.pending == 0 {
		r.pending = 1
		r.push = b[0] == '>'
	}
	for len(b) > 0 && !r.lost {
		switch {
		case r.skip > 0:
			k := min(int64(len(b)), r.skip)
			r.skip -= k
			b = b[k:]
			if r.skip == 0 {
				r.value(0)
			}
		case r.kind == 0:
			r.kind, r.number, r.minus = b[0], 0, false
			r.lost = bytes.IndexByte([]byte("+-:$*_,#(=!~>%|"), b[0]) < 0
			b = b[1:]
		default:
			b = r.line(b)
		}
		if r.pending == 0 && !r.lost {
			return size - len(b), true
		}
	}
	return size - len(b), false
}

// line parses the rest of the line after the kind of a value.
func (r *replies) line(b []byte) []byte {
	switch r.kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
	default: // a value of one line
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return nil
		}
		r.value(0)
		return b[end+1:]
	}
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9' && r.number < 1<<40:
			r.number = r.number*10 + int64(c-'0')
		case c == '-':
			r.minus = true
		case c == '\r':
		case c == '\n':
			r.sized()
			return b[i+1:]
		default:
			r.lost = true
			return nil
		}
	}
	return nil
}

// sized sets the next state, after the parser has read the size of a value.
func (r *replies) sized() {
	if r.minus { // null
		r.value(0)
		return
	}
	switch r.kind {
	case '$', '=', '!':
		r.skip = r.number + 2
	case '%':
		r.value(2 * r.number)
	case '|': // attributes of the next value
		r.value(2*r.number + 1)
	default:
		r.value(r.number)
	}
}

// value ends a value that contains more further values.
func (r *replies) value(more int64) {
	r.pending += more - 1
	r.kind = 0
}
