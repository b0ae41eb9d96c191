package codec_test

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
)

// every has a field of each type.
type every struct {
	Text    string `field:"text"`
	Plain   string
	Bytes   []byte
	Flag    bool
	Small   int8
	Big     uint64
	Share   float32
	Wait    time.Duration
	At      time.Time
	Address netip.Addr
	Maybe   *int   `field:"maybe"`
	Note    string `field:"note,optional"`
	Size    int    `field:"size" default:"7"`
	Left    func() `field:"-"`
	hidden  int
}

// Values of each type arrive unchanged, whatever bytes they have.
func TestFieldsRoundTrip(t *testing.T) {
	n := -3
	want := every{
		Text: "a&b=c d%+\n", Plain: "ä", Bytes: []byte{0, 255, '='}, Flag: true, Small: -128, Big: math.MaxUint64, Share: 0.1,
		Wait: 90 * time.Second, At: time.Date(2026, 11, 23, 6, 30, 0, 123, time.UTC), Address: netip.MustParseAddr("10.0.0.1"),
		Maybe: &n, Note: "n", Size: 1,
	}
	for _, want := range []every{want, {Bytes: []byte{}}} {
		data, err := codec.Fields{}.Marshal(want)
		require.NoError(t, err)
		again, err := codec.Fields{}.Marshal(&want)
		require.NoError(t, err)
		require.Equal(t, data, again, "of a pointer")
		var got every
		require.NoError(t, codec.Fields{}.Unmarshal(data, &got))
		require.Equal(t, want, got, "%s", data)
		require.Zero(t, got.hidden)
		var pointer *every
		require.NoError(t, codec.Fields{}.Unmarshal(data, &pointer))
		require.Equal(t, want, *pointer)
	}
}

// A required field must be there. Other fields may be, and unknown ones are ignored.
func TestFieldsThatAreMissing(t *testing.T) {
	type order struct {
		Customer string `field:"customer"`
		Cents    int    `field:"cents" default:"100"`
		Note     string `field:",optional"`
		Coupon   *string
	}
	var o order
	require.NoError(t, codec.Fields{}.Unmarshal([]byte("other=1&customer=ada&customer=ben"), &o))
	require.Equal(t, order{Customer: "ada", Cents: 100}, o)
	require.NoError(t, codec.Fields{}.Unmarshal([]byte("customer=&cents=5&Note=n&Coupon="), &o))
	require.Equal(t, order{Cents: 5, Note: "n", Coupon: new(string)}, o)

	err := codec.Fields{}.Unmarshal([]byte("cents=5"), &o)
	require.EqualError(t, err, `codec: field "customer": missing`)
	require.ErrorIs(t, err, codec.ErrMissing)
	var f *codec.FieldError
	require.ErrorAs(t, err, &f)
	require.Equal(t, "customer", f.Field)
	data, err := codec.Fields{}.Marshal(order{Customer: "ada"})
	require.NoError(t, err)
	require.Equal(t, "customer=ada&cents=0", string(data), "optional fields that are zero are left out")
}

// An error names the field and does not show its value.
func TestFieldsThatAreWrong(t *testing.T) {
	type one[T any] struct {
		V T `field:"v"`
	}
	for want, into := range map[string]any{
		`codec: field "v": not of type int: invalid syntax`:     new(one[int]),
		`codec: field "v": not of type int8: invalid syntax`:    new(one[int8]),
		`codec: field "v": not of type uint: invalid syntax`:    new(one[uint]),
		`codec: field "v": not of type float64: invalid syntax`: new(one[float64]),
		`codec: field "v": not of type bool: invalid syntax`:    new(one[bool]),
		`codec: field "v": not a duration`:                      new(one[time.Duration]),
		`codec: field "v": type map[string]int has no text`:     new(one[map[string]int]),
		`codec: field "v": type codec_test.order has no text`:   new(one[order]),
	} {
		require.EqualError(t, codec.Fields{}.Unmarshal([]byte("v=s3cret"), into), want)
	}
	require.EqualError(t, codec.Fields{}.Unmarshal([]byte("v=300"), new(one[int8])), `codec: field "v": not of type int8: value out of range`)
	require.EqualError(t, codec.Fields{}.Unmarshal([]byte("v=%zz"), new(one[int])), "codec: payload is not of URL-encoded fields")
	for _, into := range []any{nil, 7, order{}, new(int), (*order)(nil)} {
		require.ErrorContains(t, codec.Fields{}.Unmarshal(nil, into), "want a pointer to a struct")
	}
	_, err := codec.Fields{}.Marshal(one[[]int]{})
	require.EqualError(t, err, `codec: field "v": type []int has no text`)
	_, err = codec.Fields{}.Marshal("text")
	require.EqualError(t, err, "codec: fields of a string, want a struct")
	_, err = codec.Fields{}.Marshal((*order)(nil))
	require.Error(t, err)
}

// Another program adds entries with XADD. With the setting flat of the topic they are
// events, and a struct with tags reads them.
func ExampleFields() {
	type Payment struct {
		Customer string        `field:"customer_id"`
		Cents    int           `field:"amount"`
		Currency string        `field:"currency" default:"EUR"`
		Wait     time.Duration `field:"wait,optional"`
	}
	payments := eventbus.Topic[Payment]{Name: "payments", Codec: codec.Fields{}}
	for _, payload := range []string{"customer_id=ada&amount=1200&wait=30s", "customer_id=ben&amount=much", "amount=5"} {
		fmt.Println(payments.Decode(&eventbus.Event{ContentType: "application/x-www-form-urlencoded", Payload: []byte(payload)}))
	}
	// Output:
	// {ada 1200 EUR 30s} <nil>
	// {ben 0  0s} eventbus: decode from payments: codec: field "amount": not of type int: invalid syntax
	// { 0  0s} eventbus: decode from payments: codec: field "customer_id": missing
}

// A code has an x in front as a text. Its methods need a pointer.
type code string

func (c *code) MarshalText() ([]byte, error)    { return []byte("x" + string(*c)), nil }
func (c *code) UnmarshalText(text []byte) error { *c = code(text[1:]); return nil }

// Unmarshal returns the value that Marshal was given: also values with text methods on their
// pointers, and zeros in place of defaults.
func TestFieldsRoundTripPointersAndZeros(t *testing.T) {
	type row struct {
		Code  code
		Total big.Int
		Wait  time.Duration `field:"wait,optional" default:"30s"`
		On    bool          `field:"on,optional" default:"true"`
	}
	want := row{Code: "abc"}
	want.Total.SetInt64(12)
	got, err := decode[row](codec.Fields{}, event(t, codec.Fields{}, want))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A pointer to a nil pointer is an error.
func TestFieldsOfANilPointer(t *testing.T) {
	type row struct{ At **time.Time }
	var at *time.Time
	_, err := codec.Fields{}.Marshal(row{&at})
	require.ErrorContains(t, err, "a nil pointer has no text")
}
