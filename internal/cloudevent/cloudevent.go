// Package cloudevent reads messages that are CloudEvents, whether the bus or another program wrote
// them.
//
// The bus stores an event in binary mode: the payload is the data, and each attribute is a header
// with the prefix "ce-". Drivers store the ID and the key in their own way. Other programs may
// write names in another letter case, or use structured mode, where the payload is a JSON object
// with the attributes and the data. [Adopt] turns all of these into the form that the bus stores,
// so that no driver has to.
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

// Version is the value of SpecVersion, the version of CloudEvents that the bus writes.
const Version = "1.0"

// Adopt turns a received message of another program into the form that the bus stores: attribute
// names in lower case, ID and Key in their fields, and structured mode unpacked. Messages of the
// bus stay as they are. Adopt does not modify the elements of m.Headers, because they may be
// shared.
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

// isForeign reports whether name is an attribute's name in a form that the bus does not store.
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

// rename changes the attribute names of m to lower case, and moves ID and Key to their fields. If a
// name occurs in several letter cases, the lower-case one counts.
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

// IsExtension reports whether CloudEvents allow name, without Prefix, as an attribute's name.
func IsExtension(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && name != "data"
}
