package redisstream

import (
	"fmt"
	"io"
	"strconv"
)

// A request is commands as they go out.
type request struct{ text []byte }

const (
	fullRequest = 64 << 10 // what is written together at most, but for a string that is small enough
	apart       = 16 << 10 // the length of a payload from which on it is written on its own, and not copied
)

// A value is the value of an entry: its text and, if that is large, the payload
// on its own.
type value struct{ text, payload []byte }

// MarshalBinary implements [encoding.BinaryMarshaler]: by it a pointer to a value
// is an argument for go-redis too.
func (v *value) MarshalBinary() ([]byte, error) {
	if len(v.payload) == 0 {
		return v.text, nil
	}
	return append(v.text[:len(v.text):len(v.text)], v.payload...), nil
}

// write writes commands, in pieces.
func (r *request) write(calls []*call, to io.Writer) error {
	r.text = r.text[:0]
	for _, c := range calls {
		r.begin('*', len(c.args))
		for _, arg := range c.args {
			if err := r.argument(arg, to); err != nil {
				return err
			}
		}
		if len(r.text) > fullRequest {
			if err := r.flush(to); err != nil {
				return err
			}
		}
	}
	return r.flush(to)
}

func (r *request) flush(to io.Writer) error {
	text := r.text
	r.text = r.text[:0]
	if cap(text) > 2*fullRequest {
		r.text = nil
	}
	if len(text) == 0 {
		return nil
	}
	_, err := to.Write(text)
	return err
}

// begin begins an array or a string of a length.
func (r *request) begin(kind byte, n int) {
	r.text = append(r.text, kind)
	r.text = strconv.AppendInt(r.text, int64(n), 10)
	r.text = append(r.text, "\r\n"...)
}

func (r *request) argument(arg any, to io.Writer) error {
	switch arg := arg.(type) {
	case string:
		r.string(arg)
	case *string:
		r.string(*arg)
	case int:
		r.number(int64(arg))
	case int64:
		r.number(arg)
	case *value:
		return r.value(arg, to)
	default:
		panic(fmt.Sprintf("redisstream: an argument is a %T", arg))
	}
	return nil
}

func (r *request) string(s string) {
	r.begin('$', len(s))
	r.text = append(r.text, s...)
	r.text = append(r.text, "\r\n"...)
}

func (r *request) number(n int64) {
	var buf [20]byte
	digits := strconv.AppendInt(buf[:0], n, 10)
	r.begin('$', len(digits))
	r.text = append(r.text, digits...)
	r.text = append(r.text, "\r\n"...)
}

func (r *request) value(v *value, to io.Writer) error {
	r.begin('$', len(v.text)+len(v.payload))
	r.text = append(r.text, v.text...)
	if len(v.payload) > 0 {
		if err := r.flush(to); err != nil {
			return err
		}
		if _, err := to.Write(v.payload); err != nil {
			return err
		}
	}
	r.text = append(r.text, "\r\n"...)
	return nil
}
