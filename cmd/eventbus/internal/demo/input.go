package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
)

// maxLine is the longest line of an input: a payload of the largest size, and
// everything around it.
const maxLine = 2 << 20

// An Input reads events from NDJSON: one JSON object a line, with the fields of
// [line] and no others. Empty lines are skipped. An ID must not be there twice;
// of each it remembers a hash.
type Input struct {
	name    string
	scanner *bufio.Scanner
	line    int
	seed    maphash.Seed
	seen    map[uint64]struct{}
}

// NewInput returns an Input that reads from r. Its errors call it name.
func NewInput(name string, r io.Reader) *Input {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Input{name: name, scanner: s, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// A line is the form of an event in an input.
type line struct {
	ID      string            `json:"id"` // none: the bus makes one
	Type    string            `json:"type"`
	Source  string            `json:"source"`
	Subject string            `json:"subject"`
	Key     string            `json:"key"`
	Time    time.Time         `json:"time"`
	Headers map[string]string `json:"headers"`
	Data    json.RawMessage   `json:"data"` // becomes the payload as it is
}

// Next returns the next event and the line it is on, or io.EOF.
func (in *Input) Next() (*eventbus.Event, int, error) {
	for in.scanner.Scan() {
		in.line++
		text := bytes.TrimSpace(in.scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		e, err := in.parse(text)
		if err != nil {
			return nil, in.line, in.at(in.line, err)
		}
		return e, in.line, nil
	}
	switch err := in.scanner.Err(); {
	case err == nil:
		return nil, in.line, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, in.line, in.at(in.line+1, fmt.Errorf("longer than %d bytes", maxLine))
	default:
		return nil, in.line, in.at(in.line+1, err)
	}
}

func (in *Input) parse(text []byte) (*eventbus.Event, error) {
	if text[0] != '{' {
		return nil, errors.New("not an event as JSON: it does not begin with {")
	}
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the line ends too early")
		}
		return nil, fmt.Errorf("not an event as JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.InputOffset() != int64(len(text)) {
		return nil, errors.New("not an event as JSON: there is more after it")
	}
	if l.ID != "" {
		hash := maphash.String(in.seed, l.ID)
		if _, ok := in.seen[hash]; ok {
			return nil, fmt.Errorf("the id %q is there twice", l.ID)
		}
		in.seen[hash] = struct{}{}
	}
	return l.event(), nil
}

func (l *line) event() *eventbus.Event {
	e := &eventbus.Event{
		ID: l.ID, Type: l.Type, Source: l.Source, Subject: l.Subject, Key: l.Key, Time: l.Time, Payload: l.Data,
	}
	if l.Data != nil {
		e.ContentType = eventbus.JSON{}.ContentType()
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		e.Headers = append(e.Headers, eventbus.Header{Name: name, Value: l.Headers[name]})
	}
	return e
}

// at says where in the input err is.
func (in *Input) at(line int, err error) error { return fmt.Errorf("%s:%d: %w", in.name, line, err) }
