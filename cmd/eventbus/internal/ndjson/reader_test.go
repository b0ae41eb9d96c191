package ndjson

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

func TestReaderReadsAllFields(t *testing.T) {
	in := NewReader("in", strings.NewReader(`{"id":"1","type":"t","source":"s","subject":"u","key":"k",`+
		`"time":"2026-03-02T08:00:00Z","headers":{"b":"2","a":"1"},"data": {"x": [1, 2]}}`+"\n\n  \n{}"))
	e, line, err := in.Next()
	require.NoError(t, err)
	require.Equal(t, 1, line)
	require.Equal(t, &eventbus.Event{
		ID: "1", Type: "t", Source: "s", Subject: "u", Key: "k", ContentType: "application/json",
		Time:    time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC),
		Headers: eventbus.Headers{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}},
		Payload: []byte(`{"x": [1, 2]}`),
	}, e)
	e, line, err = in.Next()
	require.NoError(t, err)
	require.Equal(t, 4, line, "empty lines are skipped and counted")
	require.Equal(t, &eventbus.Event{}, e)
	_, _, err = in.Next()
	require.Equal(t, io.EOF, err)
}

func TestReaderNamesTheLineThatIsWrong(t *testing.T) {
	for _, row := range []struct{ name, line, want string }{
		{"not JSON", `id=1`, "in:2: not an event as JSON: it does not begin with {"},
		{"broken JSON", `{"id":1,}`, "in:2: not an event as JSON: "},
		{"cut off", `{"id":"1"`, "in:2: not an event as JSON: the line ends too early"},
		{"two on a line", `{"id":"1"} {"id":"2"}`, "in:2: not an event as JSON: there is more after it"},
		{"an array", `[]`, "in:2: not an event as JSON: it does not begin with {"},
		{"Latin-1", "{\"id\":\"Gr\xfcn\"}", "in:2: not an event as JSON: it is not UTF-8"},
		{"unknown field", `{"id":"1","kye":"x"}`, `in:2: not an event as JSON: unknown field "kye"`},
		{"wrong type", `{"id":7}`, "in:2: not an event as JSON: id is a number; write it as a text, in quotes"},
		{"no time", `{"time":"yesterday"}`, "in:2: not an event as JSON: "},
		{"two payloads", `{"data":1,"data_base64":"eA=="}`, "in:2: not an event: it has both data and data_base64"},
		{"too long", `{"id":"` + strings.Repeat("x", maxLine) + `"}`, "in:2: longer than 7340032 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := NewReader("in", strings.NewReader(`{"id":"first"}`+"\n"+row.line+"\n"))
			_, _, err := in.Next()
			require.NoError(t, err)
			_, _, err = in.Next()
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestReaderSkipsAByteOrderMark(t *testing.T) {
	in := NewReader("in", strings.NewReader("\xEF\xBB\xBF{\"id\":\"first\"}\n"))
	e, _, err := in.Next()
	require.NoError(t, err)
	require.Equal(t, "first", e.ID)
}

func TestReaderReadsTheLargestTextInEscapes(t *testing.T) {
	const size = 960 << 10
	text := strings.Repeat(`\u0041`, size)
	e, _, err := NewReader("in", strings.NewReader(`{"content_type":"text/plain","data":"`+text+`"}`)).Next()
	require.NoError(t, err)
	require.Len(t, e.Payload, size)
}

func TestReaderReturnsErrorsOfReading(t *testing.T) {
	broken := errors.New("disk on fire")
	_, _, err := NewReader("in", io.MultiReader(strings.NewReader("{}"), failingReader{broken})).Next()
	require.NoError(t, err)
	in := NewReader("in", failingReader{broken})
	_, _, err = in.Next()
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "in:1: ")
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
