package console

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
)

// CBOR is shown with a line for each value. Text, bytes and tags can be told from each other.
func TestDiagnosed(t *testing.T) {
	payload, err := cbor.Marshal([]any{
		1, -2, 1.5, true, nil, []byte{0xca, 0xfe}, "a, [b] \"c\" {", []int{}, map[string]any{}, map[string]any{"k": []int{7}}, cbor.Tag{Number: 1, Content: 5},
	})
	require.NoError(t, err)
	text, ok := cborText(payload)
	require.True(t, ok)
	require.Equal(t, `[
  1,
  -2,
  1.5,
  true,
  null,
  h'cafe',
  "a, [b] \"c\" {",
  [],
  {},
  {
    "k": [
      7
    ]
  },
  1(5)
]`, text)
}

// The best form of a payload is by its content type, and each form can be asked for.
func TestFormOfCBOR(t *testing.T) {
	payload, err := cbor.Marshal(map[string]int{"n": 1})
	require.NoError(t, err)
	for _, row := range []struct {
		payload     []byte
		form        payloadFormat
		contentType string
		want        payloadFormat
	}{
		{payload, "", "application/cbor", formatCBOR},
		{payload, "", "Application/CBOR; v=1", formatCBOR},
		{payload, "", "application/senml+cbor", formatCBOR},
		{payload, "", "", formatHex},
		{payload, formatCBOR, "", formatCBOR},
		{payload, formatHex, "application/cbor", formatHex},
		{payload, formatJSON, "application/cbor", formatHex},
		{[]byte("17"), "", "application/json", formatJSON},
		{[]byte("hello"), formatCBOR, "", formatText},
		{[]byte("hello"), "", "application/cbor", formatText},
		{nil, formatCBOR, "application/cbor", formatText},
	} {
		require.Equal(t, row.want, showPayload(row.payload, row.form, row.contentType).Format, "%x as %q, %q", row.payload, row.form, row.contentType)
	}
}

// Hostile CBOR needs little time and memory, and is shown otherwise.
func TestCBORIsBounded(t *testing.T) {
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x81}, n), 0) }
	_, ok := cborText(nested(maxCBORDepth))
	require.True(t, ok)
	for name, payload := range map[string][]byte{
		"too deep":              nested(maxCBORDepth + 1),
		"very deep":             nested(60_000),
		"too long":              append([]byte{0x5a, 0, 1, 0, 0}, make([]byte, 1<<16)...),
		"a length without data": {0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"two values":            {0, 0},
		"cut":                   {0x82, 0},
		"no UTF-8":              {0x61, 0xff},
		"long as text":          append(append(nested(30)[:30], 0x99, 0xf0, 0), bytes.Repeat([]byte{0x61, 'a'}, 0xf000/2)...),
		"many short lines":      append(append(bytes.Repeat([]byte{0x81}, 30), 0x99, 0xea, 0x60), make([]byte, 60_000)...),
	} {
		_, ok := cborText(payload)
		require.False(t, ok, name)
		require.NotEqual(t, formatCBOR, showPayload(payload, formatCBOR, "application/cbor").Format, name)
	}
}

func FuzzCBOR(f *testing.F) {
	for _, text := range []string{"\x00", "\xa1\x61a\x82\x01\x02", "\x9f\x01\xff", "\xc2\x48\xff\xff\xff\xff\xff\xff\xff\xff", "\x7f\x61a\xff", "\xfb\x7f\xef\xff\xff\xff\xff\xff\xff", "\xd9\xd9\xf7\x80", "\x63\xe2\x80\xae"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		text, ok := cborText(payload)
		if !ok {
			return
		}
		require.LessOrEqual(t, len(text), 2*maxDiagnosis)
		require.LessOrEqual(t, len(payload), maxText)
		shown := showPayload(payload, formatCBOR, "")
		require.Equal(t, formatCBOR, shown.Format)
		require.Equal(t, strings.IndexFunc(shown.Text, isHidden), -1, "%q", shown.Text)
	})
}
