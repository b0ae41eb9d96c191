// Package cloudevent reads messages that are CloudEvents, of the bus or of another program.
//
// The bus stores an event in binary mode: the payload is the data, and each attribute is a
// header with the prefix "ce-". The driver stores the ID and the key in its own way. Another
// program may write the names in other letter case, or use structured mode: its payload is
// a JSON object with the attributes and the data. [Adopt] gives both forms the shape that
// the bus stores. So the bus has one place for this, whatever the backend.
package cloudevent

import (
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// Prefix begins the names of headers that store attributes.
const Prefix = "ce-"

// The headers of the attributes that the bus knows. Drivers store ID and Key elsewhere.
const (
	ID          = Prefix + "id"
	Key         = Prefix + "partitionkey"
	SpecVersion = Prefix + "specversion"
	Type        = Prefix + "type"
	Source      = Prefix + "source"
	Subject     = Prefix + "subject"
	Time        = Prefix + "time"
	ContentType = Prefix + "datacontenttype"
)

// Version is the value of SpecVersion: the version of CloudEvents that the bus writes.
const Version = "1.0"

// Adopt changes a received message of another program to the form that the bus stores: the
// names of attributes in lower case, ID and Key in their fields, an event of structured mode
// unfolded. Adopt does not change the elements of m.Headers, because they may be shared. A
// message of the bus stays as it is.
func Adopt(m *backend.Message) {
	versioned, foreign, structured := false, false, false
	for i := range m.Headers {
		switch h := &m.Headers[i]; h.Name {
		case Type, Source, Subject, Time:
		case SpecVersion:
			versioned = true
		case ContentType:
			structured = isStructured(h.Value)
		default:
			foreign = foreign || isForeign(h.Name)
		}
	}
	if foreign {
		rename(m)
		_, versioned = m.Headers.Lookup(SpecVersion)
		structured = isStructured(m.Headers.Get(ContentType))
	}
	// The data of an event in binary mode, which has a version, may be an event too.
	if structured && !versioned {
		unfold(m)
	}
}

// isForeign reports whether name is the name of an attribute, but not as the bus stores it.
func isForeign(name string) bool {
	return HasPrefix(name) && (name == ID || name == Key || hasUpper(name))
}

// HasPrefix reports whether name begins with Prefix, in any letter case.
func HasPrefix(name string) bool {
	return len(name) >= len(Prefix) && name[2] == '-' && strings.EqualFold(name[:len(Prefix)], Prefix)
}

func hasUpper(name string) bool {
	for _, c := range []byte(name) {
		if 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return false
}

// rename writes the names of the attributes of m in lower case, and moves ID and Key to
// their fields. If a name is there in several letter cases, the lower one counts.
func rename(m *backend.Message) {
	headers := make(backend.Headers, 0, len(m.Headers))
	for _, h := range m.Headers {
		if !isForeign(h.Name) {
			headers = append(headers, h)
		}
	}
	for _, h := range m.Headers {
		if !isForeign(h.Name) {
			continue
		}
		switch name := strings.ToLower(h.Name); name {
		case ID:
			setIfEmpty(&m.ID, h.Value)
		case Key:
			setIfEmpty(&m.Key, h.Value)
		default:
			if _, twice := headers.Lookup(name); !twice {
				headers = append(headers, backend.Header{Name: name, Value: h.Value})
			}
		}
	}
	m.Headers = headers
}

func setIfEmpty(to *string, value string) {
	if *to == "" {
		*to = value
	}
}

// IsExtension reports whether CloudEvents allow name as the name of an attribute. Prefix is
// not a part of name.
func IsExtension(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && name != "data"
}
