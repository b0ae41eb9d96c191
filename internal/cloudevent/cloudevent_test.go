package cloudevent_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
)

// FuzzAdopt: a message of another program is adopted without a panic, once for all, and its
// shared headers are not written to.
func FuzzAdopt(f *testing.F) {
	f.Add("Ce-Id", "1", "ce-datacontenttype", "application/cloudevents+json", []byte(`{"specversion":"1.0","id":"1","data":{"a":1}}`))
	f.Add("ce-partitionkey", "k", "CE-", "", []byte(`{"specversion":"1.0","id":"1","datacontenttype":"text/plain","data":"a"}`))
	f.Add("ce-datacontenttype", "application/cloudevents+json;", "ce-Datacontenttype", "x", []byte(`{"specversion":"1.0","id":"1","data_base64":"AA=="}`))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, payload []byte) {
		headers := backend.Headers{{Name: name1, Value: value1}, {Name: name2, Value: value2}}
		m := backend.Message{Headers: slices.Clone(headers), Payload: slices.Clone(payload)}
		shared := m.Headers
		cloudevent.Adopt(&m)
		require.Equal(t, headers, shared)
		again := m
		cloudevent.Adopt(&again)
		require.Equal(t, m, again)
		if _, versioned := m.Headers.Lookup(cloudevent.SpecVersion); !versioned {
			require.Equal(t, payload, m.Payload)
		}
		if !slices.Equal(payload, m.Payload) {
			require.True(t, json.Valid(payload))
			require.NotEmpty(t, m.ID)
		}
	})
}

// The usual message of the bus is looked at without an allocation.
func TestAdoptAllocatesNothingForTheBus(t *testing.T) {
	m := backend.Message{ID: "1", Headers: backend.Headers{
		{Name: cloudevent.SpecVersion, Value: cloudevent.Version},
		{Name: cloudevent.Type, Value: "order.placed"},
		{Name: "ce-dataschema", Value: "urn:order"},
		{Name: cloudevent.ContentType, Value: "application/json"},
		{Name: "correlation-id", Value: "2"},
	}}
	require.Zero(t, testing.AllocsPerRun(100, func() { cloudevent.Adopt(&m) }))
}
