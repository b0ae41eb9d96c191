package redisstream

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// headField is the last field of an entry in the second form. Its value has the lines of the
// entry before the payload. The fields before it are the payload.
const headField = ":event"

const maxFlat = 100 // fields of an entry in the second form

// flatFields returns the names and values of the fields that are the payload of m. ok is false
// if m cannot be stored so that the same payload is read again.
func flatFields(m *backend.Message) (fields []any, ok bool) {
	n := bytes.Count(m.Payload, []byte("&")) + 1
	if m.Headers.Get(contentTypeName) != flatContentType || len(m.Payload) == 0 || n > maxFlat {
		return nil, false
	}
	fields = make([]any, 0, 2*n+2)
	var again []byte
	for pair := range strings.SplitSeq(string(m.Payload), "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || name == headField {
			return nil, false
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, false
		}
		fields = append(fields, name, value)
		again = appendFlat(again, name, value)
	}
	return fields, bytes.Equal(again, m.Payload)
}

// appendFlat appends a field to a payload, which has the form of the query of a URL.
func appendFlat(payload []byte, name, value string) []byte {
	if len(payload) > 0 {
		payload = append(payload, '&')
	}
	payload = append(payload, url.QueryEscape(name)...)
	payload = append(payload, '=')
	return append(payload, url.QueryEscape(value)...)
}

// readSplit fills m from the fields of an entry in the second form. It returns false if the
// entry has another form. left is as in readHead.
func readSplit(p *parser, mem *slab.Slab, m *backend.Message, left int) bool {
	n := p.array()
	if n < 4 || n%2 == 1 {
		return false
	}
	var payload []byte
	for ; n > 2 && p.err == nil; n -= 2 {
		name, value := p.bulk(), p.bulk()
		payload = appendFlat(payload, string(name), string(value))
	}
	if string(p.bulk()) != headField {
		return false
	}
	head, _ := mem.Both(p.bulk())
	if end, err := readHead(mem, m, head, left); err != nil || end != len(head) || p.err != nil {
		m.ID, m.Key, m.Headers = "", "", nil
		return false
	}
	m.Payload = payload
	return true
}

// The headers that readFlat adds: the attributes of an event that an entry of another
// program has no lines for.
const (
	typeName        = "ce-type"
	timeName        = "ce-time"
	contentTypeName = "ce-datacontenttype"
	flatContentType = "application/x-www-form-urlencoded"
)

// readFlat fills m from the fields of an entry that another program has added. The payload
// is encoded like the query of a URL, which keeps any bytes, the order of the fields, and
// several fields with one name. Of several fields with the name of an attribute, the first
// with a usable value counts.
func readFlat(p *parser, m *backend.Message, id []byte, o TopicOptions) {
	var payload []byte
	m.ID, m.Key = string(id), ""
	m.Headers = backend.Headers{{Name: contentTypeName, Value: flatContentType}}
	named := false
	if at, known := entryTime(m.ID); known {
		m.Headers.Set(timeName, at.UTC().Format(time.RFC3339Nano))
	}
	for n := p.array(); n > 1; n -= 2 {
		name, value := string(p.bulk()), string(p.bulk())
		payload = appendFlat(payload, name, value)
		if name == o.FlatKey && name != "" && m.Key == "" {
			m.Key = value
		}
		if name == o.FlatID && !named && isAttribute(value) {
			m.ID, named = value, true
		}
		if name == o.FlatType && isAttribute(value) && m.Headers.Get(typeName) == "" {
			m.Headers.Set(typeName, value)
		}
	}
	m.Payload = payload
}

// entryTime returns the server's time in the id of an entry. The server has made the id from
// its time, unless that is not in the years 2001 to 2096.
func entryTime(id string) (at time.Time, known bool) {
	first, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(first, 10, 64)
	return time.UnixMilli(ms), err == nil && 1e12 < ms && ms < 4e12
}

// isAttribute reports whether Publish would accept a value as the ID or the type of an event.
func isAttribute(value string) bool {
	return value != "" && len(value) <= maxAttribute && utf8.ValidString(value) && strings.IndexFunc(value, unicode.IsControl) < 0
}

const maxAttribute = 512
