package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/codec/cbor"
)

type order struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// event returns the event that a topic with the codec makes of v.
func event[T any](t *testing.T, c codec.Codec, v T) *eventbus.Event {
	t.Helper()
	e, err := eventbus.Topic[T]{Name: "orders", Codec: c}.Event(v)
	require.NoError(t, err)
	return e
}

func decode[T any](c codec.Codec, e *eventbus.Event) (T, error) {
	return eventbus.Topic[T]{Name: "orders", Codec: c}.Decode(e)
}

// A codec reads its own content type, kinds of it, and payloads without one.
func TestAccepts(t *testing.T) {
	for contentType, want := range map[string]bool{
		"":                                   true,
		"application/json":                   true,
		"Application/JSON; charset=utf-8":    true,
		"application/json;version=2":         true,
		"application/cloudevents+json":       true,
		"application/cloudevents+json; v=1":  true,
		"application/cbor":                   false,
		"text/plain":                         false,
		"text/json":                          false,
		"application/jsonl":                  false,
		"application/cloudevents-batch+cbor": false,
	} {
		require.Equal(t, want, codec.Accepts(codec.JSON{}, contentType), contentType)
	}
	require.True(t, codec.Accepts(untyped{}, "text/plain"), "a codec without a content type")
}

// untyped is a codec without a content type.
type untyped struct{ codec.JSON }

func (untyped) ContentType() string { return "" }

// Raw leaves bytes and texts as they are, and copies the bytes of a delivery.
func TestRaw(t *testing.T) {
	e := event(t, codec.Raw{}, []byte{0, 1, 2})
	require.Equal(t, "application/octet-stream", e.ContentType)
	got, err := decode[[]byte](codec.Raw{}, e)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 1, 2}, got)
	got[0] = 9
	require.Equal(t, []byte{0, 1, 2}, e.Payload, "the payload of the delivery")

	e = event(t, codec.Raw{Media: "text/plain"}, "hello")
	text, err := decode[string](codec.Raw{Media: "text/plain"}, e)
	require.NoError(t, err)
	require.Equal(t, "hello", text)

	_, err = decode[string](codec.Raw{}, e)
	require.ErrorContains(t, err, `content type "text/plain", want "application/octet-stream"`)
	_, err = codec.Raw{}.Marshal(7)
	require.EqualError(t, err, "codec: raw payload is a int, want []byte or string")
	require.EqualError(t, codec.Raw{}.Unmarshal(nil, new(int)), "codec: raw payload is read into a *int, want *[]byte or *string")
}

// Limit bounds payloads on both sides, whatever codec is below it.
func TestLimit(t *testing.T) {
	decodes := 0
	versions := codec.Versions{Upcasts: []codec.Upcaster{func(old []byte) ([]byte, error) { decodes++; return old, nil }}}
	for _, c := range []codec.Codec{codec.Limit(10, codec.Raw{}), codec.Limit(10, codec.Versions{Codec: codec.Raw{}}), codec.Limit(10, codec.ByContentType(codec.Raw{}))} {
		_, err := c.Marshal(make([]byte, 10))
		require.NoError(t, err)
		_, err = c.Marshal(make([]byte, 11))
		require.ErrorIs(t, err, eventbus.ErrTooLarge)
		require.EqualError(t, err, "codec: payload of 11 bytes, want at most 10")
		for bytes, want := range map[int]error{10: nil, 11: &codec.SizeError{Bytes: 11, Limit: 10}} {
			var v []byte
			require.Equal(t, want, c.Unmarshal(make([]byte, bytes), &v))
			require.Equal(t, want, codec.Decode(c, "", make([]byte, bytes), &v))
		}
	}
	require.Error(t, codec.Decode(codec.Limit(1, versions), "", []byte("{}"), new(order)))
	require.Zero(t, decodes, "upcasts of a payload that is too long")
	_, err := codec.Limit(10, codec.JSON{}).Marshal(func() {})
	require.Error(t, err)
}

// ByContentType writes with one codec and reads with all.
func TestByContentType(t *testing.T) {
	c := codec.ByContentType(cbor.Codec{}, codec.JSON{})
	want := order{"ada", 1200}
	e := event(t, c, want)
	require.Equal(t, "application/cbor", e.ContentType)
	for name, e := range map[string]*eventbus.Event{
		"cbor":              e,
		"json":              event(t, codec.JSON{}, want),
		"no content type":   {Payload: e.Payload},
		"with a parameter":  {ContentType: "application/json; charset=utf-8", Payload: []byte(`{"customer":"ada","cents":1200}`)},
		"structured suffix": {ContentType: "application/vnd.shop+json", Payload: []byte(`{"customer":"ada","cents":1200}`)},
	} {
		got, err := decode[order](c, e)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	_, err := decode[order](c, &eventbus.Event{ContentType: "text/plain"})
	require.EqualError(t, err, `eventbus: decode from orders: codec: content type "text/plain", want "application/cbor, application/json"`)
	require.Panics(t, func() { codec.ByContentType(nil) })
	require.Panics(t, func() { codec.ByContentType(codec.JSON{}, nil) })
}

// renamed makes version 2 of an order from version 1, in which the amount was in euros.
func renamed(payload []byte) ([]byte, error) {
	var old struct {
		Name  string
		Euros int
	}
	if err := json.Unmarshal(payload, &old); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"customer": old.Name, "euros": old.Euros})
}

// inCents makes version 3 from version 2.
func inCents(payload []byte) ([]byte, error) {
	var old struct {
		Customer string
		Euros    int
	}
	if err := json.Unmarshal(payload, &old); err != nil {
		return nil, err
	}
	if old.Customer == "" {
		return nil, errors.New("no customer")
	}
	return json.Marshal(order{old.Customer, 100 * old.Euros})
}

// Versions reads old payloads through the upcasters from their version on.
func TestVersions(t *testing.T) {
	v := codec.Versions{Upcasts: []codec.Upcaster{renamed, inCents}}
	want := order{"ada", 1200}
	e := event(t, v, want)
	require.Equal(t, "application/json; version=3", e.ContentType)
	require.Equal(t, "application/json", codec.Versions{}.ContentType(), "of version 1")
	for contentType, payload := range map[string]string{
		e.ContentType:                 string(e.Payload),
		"application/json; version=2": `{"customer":"ada","euros":12}`,
		"application/json; version=1": `{"name":"ada","euros":12}`,
		"application/json":            `{"name":"ada","euros":12}`,
		"":                            `{"name":"ada","euros":12}`,
	} {
		old := &eventbus.Event{ContentType: contentType, Payload: []byte(payload)}
		got, err := decode[order](v, old)
		require.NoError(t, err, contentType)
		require.Equal(t, want, got, contentType)
		require.Equal(t, payload, string(old.Payload), "the event itself")
	}
	for contentType, reason := range map[string]string{
		"application/json; version=4": `payload of version 4, newer than 3, the newest known`,
		"application/json; version=2": `payload of version 2 to 3: no customer`,
		"application/json; version=0": `content type "application/json; version=0" has no version that is a number from 1`,
		"application/json; version=x": `has no version that is a number from 1`,
		"application/json; version":   `content type "application/json; version": mime: invalid media parameter`,
		"application/cbor; version=1": `content type "application/cbor; version=1", want "application/json"`,
	} {
		_, err := decode[order](v, &eventbus.Event{Type: "order.placed", ContentType: contentType, Payload: []byte(`{}`)})
		require.ErrorContains(t, err, reason)
	}
}

// Old JSON is upcast, and new events are CBOR.
func TestVersionsAndContentTypes(t *testing.T) {
	c := codec.ByContentType(cbor.Codec{}, codec.Versions{Upcasts: []codec.Upcaster{renamed, inCents}})
	got, err := decode[order](c, &eventbus.Event{ContentType: "application/json", Payload: []byte(`{"name":"ada","euros":12}`)})
	require.NoError(t, err)
	require.Equal(t, order{"ada", 1200}, got)
	require.Equal(t, "application/cbor", event(t, c, got).ContentType)

	c = codec.Versions{Codec: codec.ByContentType(codec.JSON{}, codec.Raw{Media: "text/plain"}), Upcasts: []codec.Upcaster{func(old []byte) ([]byte, error) {
		return bytes.ToUpper(old), nil
	}}}
	text, err := decode[string](c, &eventbus.Event{ContentType: "text/plain", Payload: []byte("old")})
	require.NoError(t, err)
	require.Equal(t, "OLD", text)
}

// Versions reads its own payloads, even if the codec has no content type.
func TestVersionsOfACodecWithoutContentType(t *testing.T) {
	same := func(old []byte) ([]byte, error) { return old, nil }
	v := codec.Versions{Codec: untyped{}, Upcasts: []codec.Upcaster{same}}
	e := event(t, v, 7)
	got, err := decode[int](v, e)
	require.NoError(t, err, "content type %q", e.ContentType)
	require.Equal(t, 7, got)
}

// No upcaster gets a payload of a content type that the codec does not read.
func TestVersionsUpcastsNoForeignPayload(t *testing.T) {
	for name, inner := range map[string]codec.Codec{
		"plain": codec.JSON{}, "limit": codec.Limit(100, codec.JSON{}), "choice": codec.ByContentType(codec.JSON{}, codec.Raw{}),
	} {
		v := codec.Versions{Codec: inner, Upcasts: []codec.Upcaster{func([]byte) ([]byte, error) {
			t.Error(name)
			return []byte("1"), nil
		}}}
		var n int
		var foreign *codec.ContentTypeError
		require.ErrorAs(t, codec.Decode(v, "text/xml", []byte("<n/>"), &n), &foreign, name)
	}
}
