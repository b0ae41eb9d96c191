package ndjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed41896749/eventbus"
)

// A line is the form of an event. What follows Headers is written for a receipt,
// and read and passed over, so that what was written can be read again.
type line struct {
	ID      string            `json:"id,omitempty"` // none: the bus makes one
	Type    string            `json:"type,omitempty"`
	Source  string            `json:"source,omitempty"`
	Subject string            `json:"subject,omitempty"`
	Key     string            `json:"key,omitempty"`
	Time    time.Time         `json:"time,omitzero"`
	Headers map[string]string `json:"headers,omitempty"`

	Topic    string `json:"topic,omitempty"`
	Group    string `json:"group,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Position string `json:"position,omitempty"`

	// ContentType is that of JSON if it is missing and there is data.
	ContentType *string `json:"content_type,omitempty"`

	// Data is the payload as it is; with a ContentType that is not of JSON, a
	// string whose text is the payload. Base64 is a payload that is neither.
	Data   json.RawMessage `json:"data,omitempty"`
	Base64 *[]byte         `json:"data_base64,omitempty"`
}

func (l *line) event() (*eventbus.Event, error) {
	e := &eventbus.Event{
		ID: l.ID, Type: l.Type, Source: l.Source, Subject: l.Subject, Key: l.Key, Time: l.Time,
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
		e.Headers = append(e.Headers, eventbus.Header{Name: name, Value: l.Headers[name]})
	}
	return e, nil
}

var jsonType = eventbus.JSON{}.ContentType()

// ContentTypeOf guesses what a payload is that was given without a type: JSON or
// text, or else bytes.
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

// isJSON reports whether a payload of this type is JSON; one of no type may be.
func isJSON(contentType string) bool {
	if contentType == "" || contentType == jsonType {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == jsonType || t == "text/json" || strings.HasSuffix(t, "+json"))
}

// Append appends the line that describes a receipt, or, without Group and
// Attempt, what is stored. Read again it is the same event; only JSON that spans
// lines, or has space around it, is compacted.
func Append(b []byte, d *eventbus.Delivery) []byte {
	l := line{
		ID: d.ID, Type: d.Type, Source: d.Source, Subject: d.Subject, Key: d.Key, Time: d.Time,
		Topic: d.Topic, Group: d.Group, Attempt: d.Attempt, Position: d.Position,
	}
	if len(d.Headers) > 0 {
		l.Headers = make(map[string]string, len(d.Headers))
		for _, h := range d.Headers {
			l.Headers[h.Name] = h.Value
		}
	}
	var raw []byte
	switch asJSON := isJSON(d.ContentType); {
	case len(d.Payload) == 0:
	case asJSON && json.Valid(d.Payload):
		raw = oneLine(d.Payload)
	case !asJSON && utf8.Valid(d.Payload):
		raw = quoted(string(d.Payload))
	default:
		l.Base64 = &d.Payload
	}
	if (raw == nil && d.ContentType != "") || (raw != nil && d.ContentType != jsonType) {
		l.ContentType = &d.ContentType
	}
	return l.append(b, raw)
}

// append writes the fields, then the data, which the encoder would change.
func (l *line) append(b []byte, raw []byte) []byte {
	var buf bytes.Buffer
	to := json.NewEncoder(&buf)
	to.SetEscapeHTML(false)
	_ = to.Encode(l) // strings, numbers and a time: a year beyond 9999 is the only thing it refuses
	fields := bytes.TrimSuffix(buf.Bytes(), []byte("}\n"))
	if len(fields) == 0 {
		l.Time = time.Time{}
		return l.append(b, raw)
	}
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
