package ndjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/deadletter"
)

// An eventLine is the JSON form of an event. The fields after Headers describe a delivery. They are written but ignored when
// read, so that output can be input again.
type eventLine struct {
	ID      string            `json:"id,omitempty"` // if empty, the bus makes one
	Type    string            `json:"type,omitempty"`
	Source  string            `json:"source,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Key     string            `json:"key,omitempty"`
	Time    time.Time         `json:"time,omitzero"`
	TTL     duration          `json:"ttl,omitzero"`
	Retry   *retryRule        `json:"retry,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`

	Topic    string      `json:"topic,omitempty"`
	Group    string      `json:"group,omitempty"`
	Attempt  int         `json:"attempt,omitempty"`
	Position string      `json:"position,omitempty"`
	Dead     *deadLetter `json:"dead,omitempty"`

	// ContentType is "application/json" by default if Data is given.
	ContentType *string `json:"content_type,omitempty"`

	// Data is the payload: a JSON value or, if ContentType is not JSON, a string with the text of the payload. Base64 holds
	// a payload that is neither, and a text that is shorter that way.
	Data   json.RawMessage `json:"data,omitempty"`
	Base64 *[]byte         `json:"data_base64,omitempty"`
}

func (l *eventLine) event() (*eventbus.Event, error) {
	e := &eventbus.Event{
		ID: l.ID, Type: l.Type, Source: l.Source, Subject: l.Subject, Key: l.Key, Time: l.Time,
		TTL: time.Duration(l.TTL), Retry: l.Retry.retry(),
	}
	switch {
	case l.ContentType != nil:
		e.ContentType = *l.ContentType
	case l.Data != nil:
		e.ContentType = jsonType
	}
	switch {
	case l.Base64 != nil && l.Data != nil:
		return nil, errors.New("not an event: it has both data and data_base64")
	case l.Base64 != nil:
		e.Payload = *l.Base64
	case l.Data != nil && l.Data[0] == '"' && !isJSON(e.ContentType):
		var text string
		if err := json.Unmarshal(l.Data, &text); err != nil {
			return nil, err
		}
		e.Payload = []byte(text)
	default:
		e.Payload = l.Data
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		e.Headers.Set(name, l.Headers[name])
	}
	return e, nil
}

var jsonType = codec.JSON{}.ContentType()

// ContentTypeOf guesses the type of a payload: JSON, text, or bytes.
func ContentTypeOf(payload []byte) string {
	switch {
	case len(payload) == 0:
		return ""
	case json.Valid(payload):
		return jsonType
	case utf8.Valid(payload):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// isJSON reports whether payloads of this type are JSON. Payloads without a type may be.
func isJSON(contentType string) bool {
	if contentType == "" || contentType == jsonType {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == jsonType || t == "text/json" || strings.HasSuffix(t, "+json"))
}

// A deadLetter is the part of a line that says why the event is a dead letter.
type deadLetter struct {
	Reason      string    `json:"reason"`
	Error       string    `json:"error,omitempty"`
	ErrorClass  string    `json:"error_class,omitempty"`
	Stack       string    `json:"stack,omitempty"`
	Attempts    int       `json:"attempts"`
	LastAttempt time.Time `json:"last_attempt,omitzero"`
	Redriven    int       `json:"redriven,omitempty"`
	Place       string    `json:"place"` // the position of the letter
}

// AppendLetter appends the line of a dead letter: its event as it was published, without its TTL, and why it failed.
func AppendLetter(b []byte, l *deadletter.Letter) []byte {
	return appendLine(b, &eventbus.Delivery{Event: l.Event, Topic: l.Topic, Group: l.Group}, &deadLetter{
		Reason: l.Reason, Error: l.Error, ErrorClass: l.ErrorClass, Stack: l.Stack, Attempts: l.Attempts,
		LastAttempt: writable(l.LastAttempt), Redriven: l.Redriven, Place: l.Place,
	})
}

// Append appends the line of a delivery or, without Group and Attempt, of a stored event. A [Reader] reads the same event
// from it. JSON that spans several lines, or has space around it, is compacted.
func Append(b []byte, d *eventbus.Delivery) []byte { return appendLine(b, d, nil) }

func appendLine(b []byte, d *eventbus.Delivery, why *deadLetter) []byte {
	l := eventLine{
		ID: d.ID, Type: d.Type, Source: d.Source, Subject: d.Subject, Key: d.Key, Time: writable(d.Time),
		TTL: duration(d.TTL), Retry: ruleOf(d.Retry),
		Topic: d.Topic, Group: d.Group, Attempt: d.Attempt, Position: d.Position, Dead: why,
	}
	if len(d.Headers) > 0 {
		l.Headers = make(map[string]string, len(d.Headers))
		for _, h := range d.Headers {
			l.Headers[h.Name] = h.Value
		}
	}
	var raw []byte
	switch asJSON := isJSON(d.ContentType); {
	case !utf8.Valid(d.Payload):
	case !asJSON:
		raw = quoted(string(d.Payload))
	case json.Valid(d.Payload):
		raw = oneLine(d.Payload)
	}
	if size := base64.StdEncoding.EncodedLen(len(d.Payload)); size == 0 {
		raw = nil
	} else if raw == nil || !isJSON(d.ContentType) && len(raw) > size+2 {
		raw, l.Base64 = nil, &d.Payload
	}
	if (raw == nil && d.ContentType != "") || (raw != nil && d.ContentType != jsonType) {
		l.ContentType = &d.ContentType
	}
	return l.append(b, raw)
}

// append appends the line to b. An encoder writes all fields but the data, which it would reformat; raw, the data, is added
// after them.
func (l *eventLine) append(b []byte, raw []byte) []byte {
	var buf bytes.Buffer
	to := json.NewEncoder(&buf)
	to.SetEscapeHTML(false)
	_ = to.Encode(l) // it cannot fail, because the times are writable
	fields := bytes.TrimSuffix(buf.Bytes(), []byte("}\n"))
	b = append(b, fields...)
	if raw != nil {
		if len(fields) > 1 {
			b = append(b, ',')
		}
		b = append(b, `"data":`...)
		b = append(b, raw...)
	}
	return append(b, '}', '\n')
}

// writable returns t in a form that JSON can hold, or zero for years that it cannot.
func writable(t time.Time) time.Time {
	if _, err := t.MarshalJSON(); err == nil {
		return t
	}
	if t = t.UTC(); t.Year() > 9999 || t.Year() < 0 { // otherwise the zone was not writable
		return time.Time{}
	}
	return t
}

func oneLine(data []byte) []byte {
	if len(bytes.TrimSpace(data)) == len(data) && !bytes.ContainsAny(data, "\r\n") {
		return data
	}
	var buf bytes.Buffer
	_ = json.Compact(&buf, data) // it is valid
	return buf.Bytes()
}

func quoted(s string) []byte {
	var buf bytes.Buffer
	to := json.NewEncoder(&buf)
	to.SetEscapeHTML(false)
	_ = to.Encode(s)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// A retryRule is the JSON form of Event.Retry.
type retryRule struct {
	Attempts int      `json:"attempts,omitempty"`
	Initial  duration `json:"initial,omitzero"`
	Max      duration `json:"max,omitzero"`
	Discard  bool     `json:"discard,omitempty"`
}

func ruleOf(r *eventbus.RetryRule) *retryRule {
	if r == nil {
		return nil
	}
	return &retryRule{r.MaxAttempts, duration(r.Initial), duration(r.Max), r.Discard}
}

func (r *retryRule) retry() *eventbus.RetryRule {
	if r == nil {
		return nil
	}
	return &eventbus.RetryRule{MaxAttempts: r.Attempts, Initial: time.Duration(r.Initial), Max: time.Duration(r.Max), Discard: r.Discard}
}

// A duration is a duration that JSON shows as a text, such as "1m30s".
type duration time.Duration

func (s duration) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *duration) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = duration(d)
	return err
}
