package ndjson

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/deadletter"
)

// A written event is one line, and reading it returns the same event.
func TestLinesAreReadAgain(t *testing.T) {
	for _, row := range []struct {
		name        string
		contentType string
		payload     string
		want        string // at the end of the line
	}{
		{"JSON", "application/json", `{"a": [1, "<é>"]}`, `"data":{"a": [1, "<é>"]}}`},
		{"JSON with a parameter", "application/json; charset=utf-8", `1`, `"content_type":"application/json; charset=utf-8","data":1}`},
		{"JSON of another kind", "application/vnd.shop+json", `"x"`, `"content_type":"application/vnd.shop+json","data":"x"}`},
		{"JSON of no type", "", `null`, `"content_type":"","data":null}`},
		{"not the JSON it says", "application/json", `{`, `"content_type":"application/json","data_base64":"ew=="}`},
		{"text", "text/plain", "three <apples>\nand \"more\"", `"content_type":"text/plain","data":"three <apples>\nand \"more\""}`},
		{"text that could be JSON", "text/plain", `{"a":1}`, `"content_type":"text/plain","data":"{\"a\":1}"}`},
		{"text of no type", "", "apples", `"data_base64":"YXBwbGVz"}`},
		{"text of control characters", "text/plain", "\x00\x01\x02\x03", `"content_type":"text/plain","data_base64":"AAECAw=="}`},
		{"JSON that is not UTF-8", "application/json", "\"\xff\"", `"content_type":"application/json","data_base64":"Iv8i"}`},
		{"bytes", "image/png", "\xff\x00", `"content_type":"image/png","data_base64":"/wA="}`},
		{"nothing", "", "", `"position":"7"}`},
		{"nothing of a type", "text/plain", "", `"content_type":"text/plain"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := eventbus.Event{
				ID: "i", Type: "t", Source: "s", Subject: "u", Key: "k", ContentType: row.contentType,
				Time:     time.Date(2026, 3, 2, 8, 0, 0, 5, time.UTC),
				TTL:      90 * time.Second,
				Retry:    &eventbus.RetryRule{MaxAttempts: -1, Initial: time.Second, Max: time.Hour, Discard: true},
				Headers:  eventbus.Headers{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
				Position: "7",
			}
			if row.payload != "" {
				e.Payload = []byte(row.payload)
			}
			text := string(Append(nil, &eventbus.Delivery{Event: e, Topic: "orders", Group: "billing", Attempt: 3}))
			require.Equal(t, 1, strings.Count(text, "\n"))
			require.True(t, strings.HasSuffix(text, row.want+"\n"), text)
			require.Contains(t, text, `"ttl":"1m30s","retry":{"attempts":-1,"initial":"1s","max":"1h0m0s","discard":true},`)
			require.Contains(t, text, `"topic":"orders","group":"billing","attempt":3,"position":"7"`)

			got, _, err := NewReader("in", strings.NewReader(text)).Next()
			require.NoError(t, err)
			e.Position = ""
			require.Equal(t, &e, got)
		})
	}
}

func TestLinesOfWhatIsHardlyThere(t *testing.T) {
	require.Equal(t, "{}\n", string(Append(nil, &eventbus.Delivery{})))
	d := &eventbus.Delivery{Event: eventbus.Event{ContentType: "application/json", Payload: []byte(" {\n \"a\": 1\n}\n")}}
	require.Equal(t, "{\"data\":{\"a\":1}}\n", string(Append(nil, d)), "JSON on several lines is compacted")
	d.Payload, d.Time = nil, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, "{\"content_type\":\"application/json\"}\n", string(Append(nil, d)), "a time that JSON cannot show")
	d.Time = time.Date(2026, 3, 2, 8, 0, 0, 0, time.FixedZone("far", 24*60*60))
	require.Equal(t, "{\"time\":\"2026-03-01T08:00:00Z\",\"content_type\":\"application/json\"}\n", string(Append(nil, d)), "a zone that JSON cannot show")
	letter := &deadletter.Letter{}
	letter.LastAttempt = d.Time
	require.Contains(t, string(AppendLetter(nil, letter)), `"last_attempt":"2026-03-01T08:00:00Z"`)
}

func TestContentTypeOf(t *testing.T) {
	require.Equal(t, "", ContentTypeOf(nil))
	require.Equal(t, "application/json", ContentTypeOf([]byte(`{"a":1}`)))
	require.Equal(t, "text/plain; charset=utf-8", ContentTypeOf([]byte("three apples")))
	require.Equal(t, "application/octet-stream", ContentTypeOf([]byte{0xff}))
}
