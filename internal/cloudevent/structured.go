package cloudevent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

const structuredType = "application/cloudevents+json"

// isStructured reports whether a payload of this content type is an event in structured mode.
func isStructured(contentType string) bool {
	if len(contentType) < len(structuredType) || !strings.EqualFold(contentType[:len(structuredType)], structuredType) {
		return false
	}
	rest := strings.TrimSpace(contentType[len(structuredType):])
	return rest == "" || rest[0] == ';'
}

// unfold changes a message in structured mode to binary mode. It leaves m alone if the payload is
// not a valid event.
func unfold(m *backend.Message) {
	var members map[string]json.RawMessage
	if json.Unmarshal(m.Payload, &members) != nil {
		return
	}
	payload, ok := data(members)
	if !ok {
		return
	}
	headers := slices.DeleteFunc(slices.Clone(m.Headers), func(h backend.Header) bool { return strings.HasPrefix(h.Name, Prefix) })
	id, key := "", m.Key
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value, ok := text(members[name])
		switch {
		case !ok || !IsExtension(name):
			return
		case value == "":
		case Prefix+name == ID:
			id = value
		case Prefix+name == Key:
			key = value
		default:
			headers = append(headers, backend.Header{Name: Prefix + name, Value: value})
		}
	}
	if _, versioned := headers.Lookup(SpecVersion); !versioned || id == "" {
		return
	}
	m.ID, m.Key, m.Headers, m.Payload = id, key, headers, payload
}

// data removes the members with the data of an event and returns the data. JSON is the default
// content type; for JSON types the data is the member itself, and for others it is a string.
func data(members map[string]json.RawMessage) (payload []byte, ok bool) {
	plain, inBase64 := members["data"], members["data_base64"]
	delete(members, "data")
	delete(members, "data_base64")
	if !isAbsent(inBase64) {
		ok = isAbsent(plain) && json.Unmarshal(inBase64, &payload) == nil
		return payload, ok
	}
	name := strings.TrimPrefix(ContentType, Prefix)
	contentType, ok := text(members[name])
	if isAbsent(plain) || !ok {
		return nil, ok
	}
	if contentType == "" {
		members[name] = json.RawMessage(`"application/json"`)
		return plain, true
	}
	if kind, _, _ := strings.Cut(strings.ToLower(contentType), ";"); strings.HasSuffix(strings.TrimSpace(kind), "json") {
		return plain, true
	}
	var s string
	if json.Unmarshal(plain, &s) != nil {
		return plain, true
	}
	return []byte(s), true
}

// text returns the text of an attribute, which is a string, a boolean or a number.
func text(value json.RawMessage) (s string, ok bool) {
	switch {
	case isAbsent(value):
		return "", true
	case value[0] == '"':
		err := json.Unmarshal(value, &s)
		return s, err == nil
	}
	return string(value), value[0] != '{' && value[0] != '['
}

func isAbsent(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }
