package redisstream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A stream entry has one field. Its value is the message in a form that a person can read
// in redis-cli: a line for each attribute, an empty line, the payload.
//
//	:id: 019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10
//	:key: customer-7
//	ce-type: order.placed
//
//	{"order":"o-1","cents":1290}
//
// The names :id and :key are the ID and the key of the message. Other names are headers.
// A backslash, carriage return or line feed is written \\, \r or \n. In a name, a colon is
// written \:, and an empty name is \0. A future format must use a field with another name.
// flat.go has a second form.
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

// appendHead appends the head of the entry of m: all lines before the payload.
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

// entries reads the entries of one topic.
type entries struct {
	topic   string
	options TopicOptions
}

// read reads one entry into m: {id, count, fields} if counted, otherwise {id, fields}. If the
// entry cannot be decoded, its raw bytes become the payload of m. left is the number of
// entries that are not read yet, with this one; it sizes mem.
func (e *entries) read(p *parser, mem *slab.Slab, m *backend.Message, counted bool, left int) (count int, err error) {
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
		if readSplit(&parser{rest: fields}, mem, m, left) {
			return count, nil
		}
	}
	if errors.Is(err, errUnreadable) && e.options.Flat && p.err == nil {
		readFlat(&parser{rest: fields}, m, id, e.options)
		err = nil
	}
	return count, err
}

// readFields reads the fields of an entry. If the entry has one field, named "event", value
// is its value. For any other entry readFields returns errFields, and value has the fields as
// lines of name=value.
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

// usual is a number of headers that few messages exceed.
const usual = 8

// readHead reads attribute lines of text into m, up to the empty line. It returns the index
// at which the payload begins. left is the number of messages still to be read, including m.
// It tells mem how many more headers to expect.
func readHead(mem *slab.Slab, m *backend.Message, text string, left int) (end int, err error) {
	var room [usual]backend.Header
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

// endOfName returns the index of the colon that ends the name in a line, or -1. A colon at
// the beginning belongs to the name. An escaped colon belongs to it too.
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
