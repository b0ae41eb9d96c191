// Package ndjson reads, writes and publishes events as lines of JSON.
package ndjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/seed41896749/eventbus"
)

// maxLine limits a line: the largest payload, 960 KiB, and the fields around it. A JSON writer may take six bytes for each
// byte of a text, as in \u0041. The buffer of a Reader grows only as needed.
const maxLine = 7 << 20

// byteOrderMark is at the beginning of files that some Windows editors write.
var byteOrderMark = []byte("\xEF\xBB\xBF")

// A Reader reads events, one per line, in the form that [Append] writes. Every field is optional, unknown fields are
// refused, and empty lines are skipped. The events share no memory with the Reader.
type Reader struct {
	name    string
	scanner *bufio.Scanner
	line    int
}

// NewReader returns a Reader that reads from r. The name appears in errors.
func NewReader(name string, r io.Reader) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{name: name, scanner: s}
}

// Next returns the next event and the line it is on, or io.EOF.
func (r *Reader) Next() (*eventbus.Event, int, error) {
	for r.scanner.Scan() {
		r.line++
		text := r.scanner.Bytes()
		if r.line == 1 {
			text = bytes.TrimPrefix(text, byteOrderMark)
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		e, err := parse(text)
		if err != nil {
			return nil, r.line, r.At(r.line, err)
		}
		return e, r.line, nil
	}
	switch err := r.scanner.Err(); {
	case err == nil:
		return nil, r.line, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, r.line, r.At(r.line+1, fmt.Errorf("longer than %d bytes", maxLine))
	default:
		return nil, r.line, r.At(r.line+1, err)
	}
}

// At adds the input's name and a line number to err.
func (r *Reader) At(line int, err error) error { return fmt.Errorf("%s:%d: %w", r.name, line, err) }

func parse(text []byte) (*eventbus.Event, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not an event as JSON: it is not UTF-8") // encoding/json would alter the text
	}
	if text[0] != '{' {
		return nil, errors.New("not an event as JSON: it does not begin with {")
	}
	var l eventLine
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the line ends too early")
		}
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Type.Kind() == reflect.String {
			err = fmt.Errorf("%s is a %s; write it as a text, in quotes", t.Field, t.Value)
		}
		return nil, fmt.Errorf("not an event as JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.InputOffset() != int64(len(text)) {
		return nil, errors.New("not an event as JSON: there is more after it")
	}
	return l.event()
}

// Refused returns the index and the error of the first event that a Publish call refused, or -1 if err is not about an
// event.
func Refused(err error) (int, error) {
	if p, ok := errors.AsType[*eventbus.PublishError](err); ok {
		for i, e := range p.Errors {
			if e != nil {
				return i, e
			}
		}
	}
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		i, field := 0, ""
		if n, _ := fmt.Sscanf(f.Field, "events[%d].%s", &i, &field); n == 2 {
			return i, fmt.Errorf("%s %s", field, f.Reason)
		}
	}
	return -1, err
}
