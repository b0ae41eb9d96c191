package redisstream

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A stream entry has a single field, "event". Its value is the message in a format that is readable
// in redis-cli: one line per attribute, an empty line, and the payload.
//
//	:id: 019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10
//	:key: customer-7
//	ce-type: order.placed
//
//	{"order":"o-1","cents":1290}
//
// :id and :key are the ID and the key of the message; all other names are headers. A backslash,
// carriage return or line feed is written \\, \r or \n. In a name, a colon is written \:, and an
// empty name is \0. A future format must use a field with another name.
//
// FlatPublish stores messages in a second form; see headField.
const field = "event"

const (
	idName  = ":id: "
	keyName = ":key: "
)

var (
	escaper     = strings.NewReplacer(`\`, `\\`, "\r", `\r`, "\n", `\n`)
	nameEscaper = strings.NewReplacer(`\`, `\\`, "\r", `\r`, "\n", `\n`, ":", `\:`)
	unescaper   = strings.NewReplacer(`\\`, `\`, `\r`, "\r", `\n`, "\n", `\:`, ":", `\0`, "")
)

// appendHead appends the head of m's entry: all lines before the payload.
func appendHead(to []byte, m *backend.Message) []byte {
	if m.ID != "" {
		to = appendLine(to, idName, m.ID)
	}
	if m.Key != "" {
		to = appendLine(to, keyName, m.Key)
	}
	for i := range m.Headers {
		name := m.Headers[i].Name
		if name == "" {
			name = `\0`
		} else {
			name = nameEscaper.Replace(name)
		}
		to = appendLine(append(to, name...), ": ", m.Headers[i].Value)
	}
	return append(to, '\n')
}

func appendLine(to []byte, name, value string) []byte {
	return append(append(append(to, name...), escaper.Replace(value)...), '\n')
}

var (
	errUnreadable = errors.New("not an entry of the bus")
	errFields     = fmt.Errorf("%w: it has other fields than one named event; for entries of other programs, the topic needs the setting flat", errUnreadable)
	errNoHead     = fmt.Errorf("%w: an empty line is missing before the payload; without attributes the value of the field event begins with it, as in XADD … event $'\\n{\"a\":1}'", errUnreadable)
	errBodyGone   = fmt.Errorf("%w: the stream entry was deleted or trimmed", backend.ErrGone)
)

// An entryReader reads the entries of one topic.
type entryReader struct {
	topic   string
	options TopicOptions
}

// read reads one entry into m: {id, count, fields} if counted, otherwise {id, fields}. If the
// entry cannot be decoded, m gets its raw bytes as the payload. left is the number of entries
// still to be read, including this one, by which mem sizes its memory.
func (e *entryReader) read(p *parser, mem *slab.Slab, m *backend.Message, counted bool, left int) (count int, err error) {
	if count = 1; counted {
		p.arrayOf(3)
	} else {
		p.arrayOf(2)
	}
	id := p.bulk()
	m.Topic, m.Position = e.topic, position(mem, id)
	if counted {
		count = p.integer()
	}
	fields := p.rest
	value, err := readFields(p)
	text, own := mem.Both(value)
	head := 0
	if err == nil {
		head, err = readHead(mem, m, text, left)
	}
	if err != nil {
		m.ID, m.Key, m.Headers = "", "", nil
	}
	m.Payload = own[head:]
	if errors.Is(err, errFields) && p.err == nil {
		if readFlatPublished(&parser{rest: fields}, mem, m, left) {
			return count, nil
		}
	}
	if errors.Is(err, errUnreadable) && e.options.Flat && p.err == nil {
		readFlat(&parser{rest: fields}, m, id, e.options)
		err = nil
	}
	return count, err
}

// readFields reads the fields of an entry. If there is one field, named "event", value is its
// value. For any other entry it returns errFields, and value has the fields as lines of
// name=value.
func readFields(p *parser) (value []byte, err error) {
	n := p.array()
	if n < 0 {
		return nil, errBodyGone
	}
	for at := 0; at+1 < n && p.err == nil; at += 2 {
		name, text := p.bulk(), p.bulk()
		if n == 2 && string(name) == field {
			return text, nil
		}
		value = fmt.Appendf(value, "%s=%s\n", name, text)
	}
	if n%2 == 1 {
		p.bulk()
	}
	return value, errFields
}

// usualHeaders is a number of headers that few messages exceed.
const usualHeaders = 8

// readHead reads the attribute lines at the beginning of text into m, up to the empty line. It
// returns the index at which the payload begins. left is the number of messages still to be
// read, including m, from which mem estimates how many more headers there will be.
func readHead(mem *slab.Slab, m *backend.Message, text string, left int) (end int, err error) {
	var room [usualHeaders]backend.Header
	headers, at := room[:0], 0
	for {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			return 0, errNoHead
		}
		line := text[at : at+n]
		at += n + 1
		if n == 0 {
			break
		}
		colon := endOfName(line)
		if colon < 0 || !strings.HasPrefix(line[colon:], ": ") {
			return 0, fmt.Errorf("%w (%.40q is no attribute)", errNoHead, line)
		}
		name, value := unescape(line[:colon]), unescape(line[colon+2:])
		switch {
		case line[0] != ':':
			headers = append(headers, backend.Header{Name: name, Value: value})
		case strings.EqualFold(name, ":id"):
			m.ID = value
		case strings.EqualFold(name, ":key"):
			m.Key = value
		default:
			return 0, fmt.Errorf("%w: %.40q is not an attribute that it may have", errUnreadable, name)
		}
	}
	m.Headers = mem.Alike(len(headers), left)
	copy(m.Headers, headers)
	return at, nil
}

// endOfName returns the index of the colon that ends the name in a line, or -1. A colon at the
// beginning and escaped colons are part of the name.
func endOfName(line string) int {
	for at := 1; ; at++ {
		n := strings.IndexByte(line[at:], ':')
		if n < 0 {
			return -1
		}
		at += n
		if slashes := at - len(strings.TrimRight(line[:at], `\`)); slashes%2 == 0 {
			return at
		}
	}
}

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return unescaper.Replace(s)
}

// headField is the last field of an entry that was stored with FlatPublish. Its value has the
// lines that precede the payload in the usual form. The fields before it are the payload.
const headField = ":event"

const maxFlat = 100 // fields of an entry stored with FlatPublish

// flatFields returns the names and values of the fields that make up the payload of m. ok is
// false if reading them back would not give the same payload.
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

// appendFlat appends a field to a payload, which is encoded like a URL query.
func appendFlat(payload []byte, name, value string) []byte {
	if len(payload) > 0 {
		payload = append(payload, '&')
	}
	payload = append(payload, url.QueryEscape(name)...)
	payload = append(payload, '=')
	return append(payload, url.QueryEscape(value)...)
}

// readFlatPublished fills m from the fields of an entry that was stored with FlatPublish. It
// returns false for any other entry. left is as in readHead.
func readFlatPublished(p *parser, mem *slab.Slab, m *backend.Message, left int) bool {
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

// The headers that readFlat adds, for attributes of an event that an entry of another program
// does not have.
const (
	typeName        = "ce-type"
	timeName        = "ce-time"
	contentTypeName = "ce-datacontenttype"
	flatContentType = "application/x-www-form-urlencoded"
)

// readFlat fills m from the fields of an entry of another program. The payload is encoded like a
// URL query, which preserves arbitrary bytes, the order of the fields, and repeated names. If
// several fields have the name of an attribute, the first one with a usable value counts.
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

// isAttribute reports whether Publish would accept a value as the ID or the type of an event.
func isAttribute(value string) bool {
	return value != "" && len(value) <= maxAttribute && utf8.ValidString(value) && strings.IndexFunc(value, unicode.IsControl) < 0
}

const maxAttribute = 512
