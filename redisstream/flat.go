package redisstream

import (
	"net/url"

	"github.com/seed41896749/eventbus/backend"
)

// The header by which the bus knows the form of a flat payload.
const (
	contentTypeName = "ce-datacontenttype"
	flatType        = "application/x-www-form-urlencoded"
)

// readFlat makes m of the fields of an entry that another program has added. The form of
// the payload keeps any bytes, the order of fields, and fields of the same name.
func readFlat(p *parser, m *backend.Message, id []byte, key string) {
	var payload []byte
	m.ID, m.Key = string(id), ""
	for n := p.array(); n > 1; n -= 2 {
		name, value := string(p.bulk()), string(p.bulk())
		if len(payload) > 0 {
			payload = append(payload, '&')
		}
		payload = append(payload, url.QueryEscape(name)...)
		payload = append(payload, '=')
		payload = append(payload, url.QueryEscape(value)...)
		if name == key && key != "" && m.Key == "" {
			m.Key = value
		}
	}
	m.Payload, m.Headers = payload, backend.Headers{{Name: contentTypeName, Value: flatType}}
}
