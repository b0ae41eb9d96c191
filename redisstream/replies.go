package redisstream

import (
	"bytes"
	"fmt"
	"io"
)

// Replies are read here as they come in on a connection: large pieces at a time,
// into a window, and from there as they are into the memory of the call. Only
// lengths are looked at, so that it is known where a reply ends.
type replies struct {
	window   []byte // of it, window[from:to] has come and not been looked at
	from, to int
	text     []byte // memory for the replies to one call
	strings  int    // large ones in the last reply that had any
}

const (
	minWindow  = 4 << 10
	maxWindow  = 64 << 10
	maxLine    = 1 << 20 // more than the text of any error
	keepReply  = 8 << 20 // the largest memory that is kept for the next replies
	smallReply = 64 << 10
	maxArray   = 1 << 40
)

// begin makes the memory of the last call ready for the next, unless it is large
// and the last replies needed little of it. What was parsed of them is void.
func (r *replies) begin() {
	if size := cap(r.text); size > keepReply || size > smallReply && len(r.text) < size/8 {
		r.text = nil
	}
	r.text = r.text[:0]
}

// spare returns an empty reply in what is left of the memory, and keep takes the
// memory back.
func (r *replies) spare() reply     { return reply{raw: r.text[len(r.text):]} }
func (r *replies) keep(reply reply) { r.text = reply.raw }

// listen forgets what came on another connection.
func (r *replies) listen() { r.from, r.to = 0, 0 }

// rest reports whether more has come than was asked for.
func (r *replies) rest() bool { return r.from < r.to }

// read reads the next reply, which may be an error reply.
func (r *replies) read(src io.Reader) (reply, error) {
	start := len(r.text)
	f := frame{elements: 1}
	var large []largeString
	for f.elements > 0 || f.bytes > 0 {
		n, size, err := f.follow(r.window[r.from:r.to])
		if err != nil {
			return reply{}, err
		}
		r.text = append(r.text, r.window[r.from:r.from+n]...)
		r.from += n
		switch {
		case size > 0:
			value, err := r.large(src, size)
			if err != nil {
				return reply{}, err
			}
			if large == nil {
				large = make([]largeString, 0, max(r.strings, 1))
			}
			large = append(large, largeString{len(r.text) - start, value})
		case f.elements > 0 || f.bytes > 0:
			if err := r.fill(src); err != nil {
				return reply{}, err
			}
		}
	}
	if large != nil {
		r.strings = len(large)
	}
	return reply{r.text[start:len(r.text):len(r.text)], large}, nil
}

// fill brings more into the window. A window that was filled is too small.
func (r *replies) fill(src io.Reader) error {
	rest, window := r.window[r.from:r.to], r.window
	if r.to == len(window) && len(window) < maxWindow || len(rest) == len(window) {
		if len(rest) >= maxLine {
			return fmt.Errorf("%w: a line does not end", errMalformed)
		}
		window = make([]byte, max(minWindow, 4*len(window)))
	}
	r.window, r.from, r.to = window, 0, copy(window, rest)
	n, err := src.Read(r.window[r.to:])
	r.to += n
	if n > 0 {
		return nil
	}
	return err
}

// large reads a large string.
func (r *replies) large(src io.Reader, size int) (value []byte, err error) {
	value = make([]byte, 0, min(size, trust))
	for len(value) < size {
		missing := size - len(value)
		if r.from == r.to {
			if missing >= maxWindow/2 {
				return readString(src, value, int64(missing))
			}
			if err := r.fill(src); err != nil {
				return nil, err
			}
		}
		n := min(missing, r.to-r.from)
		value = append(value, r.window[r.from:r.from+n]...)
		r.from += n
	}
	return value, nil
}

// A frame is what is missing of a reply.
type frame struct {
	elements int // that have not begun
	bytes    int // of the string that has begun, with the end of its line
}

// follow goes through bytes of a reply as far as they belong to it, and reports
// how many do. If that is as far as before a large string it reports its size:
// then it goes on behind it.
func (f *frame) follow(b []byte) (n, large int, err error) {
	for f.elements > 0 || f.bytes > 0 {
		if f.bytes > 0 {
			piece := min(f.bytes, len(b)-n)
			for i := max(f.bytes-2, 0); i < piece; i++ {
				if b[n+i] != "\r\n"[i+2-f.bytes] {
					return n, 0, fmt.Errorf("%w: a string does not end where it should", errMalformed)
				}
			}
			n, f.bytes = n+piece, f.bytes-piece
			if f.bytes > 0 {
				return n, 0, nil
			}
			continue
		}
		if _, _, size := ownEntry(b[n:]); size > 0 {
			n, f.elements = n+size, f.elements-1
			continue
		}
		if length, size := length(b[n:]); size > 0 {
			n += size
			if large = f.begin(b[n-size], length); large > 0 {
				return n, large, nil
			}
			continue
		}
		size := bytes.IndexByte(b[n:], '\n') + 1
		if size == 0 {
			return n, 0, nil
		}
		line := b[n : n+size]
		n += size
		if large, err = f.line(line); large > 0 || err != nil {
			return n, large, err
		}
	}
	return n, 0, nil
}

// line goes through a line, whatever it is.
func (f *frame) line(line []byte) (large int, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, fmt.Errorf("%w: a line %.30q", errMalformed, line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ':':
		f.elements--
		return 0, nil
	case '$', '*':
	default:
		return 0, fmt.Errorf("%w: a line %.30q", errMalformed, line)
	}
	n, ok := number(text)
	if !ok || n < -1 || n > maxArray || f.elements > maxArray {
		return 0, fmt.Errorf("%w: a length %.30q", errMalformed, text)
	}
	if n < 0 {
		f.elements--
		return 0, nil
	}
	return f.begin(kind, n), nil
}

// begin goes through the length of an array or a string, which it returns if it
// is that of a large string.
func (f *frame) begin(kind byte, n int) (large int) {
	f.elements--
	switch {
	case kind == '*':
		f.elements += n
	case n > inline:
		f.bytes = int(lineEnd)
		return n
	default:
		f.bytes = n + int(lineEnd)
	}
	return 0
}

// length returns the length that b begins with, of an array or a string, and the
// size of its line, as nearly all lines are. The size is 0 if this is another or
// has not come as a whole.
func length(b []byte) (n, size int) {
	if len(b) == 0 || b[0] != '$' && b[0] != '*' {
		return 0, 0
	}
	for i := 1; i < min(len(b)-1, 10); i++ {
		if d := b[i] - '0'; d <= 9 {
			n = n*10 + int(d)
			continue
		}
		if i > 1 && b[i] == '\r' && b[i+1] == '\n' {
			return n, i + 2
		}
		break
	}
	return 0, 0
}
