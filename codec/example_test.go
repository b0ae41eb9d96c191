package codec_test

import (
	"encoding/json"
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/codec/cbor"
)

type Order struct {
	Customer string
	Cents    int
}

// A topic moves from JSON to CBOR. Readers that know both are deployed first.
func ExampleByContentType() {
	orders := eventbus.Topic[Order]{Name: "orders", Codec: codec.ByContentType(cbor.Codec{}, codec.JSON{})}
	published, err := orders.Event(Order{"ada", 1200})
	if err != nil {
		panic(err)
	}
	fmt.Println(published.ContentType)
	old := &eventbus.Event{ContentType: "application/json", Payload: []byte(`{"Customer":"ben","Cents":50}`)}
	fmt.Println(orders.Decode(old))
	fmt.Println(orders.Decode(&eventbus.Event{ContentType: "text/plain"}))
	// Output:
	// application/cbor
	// {ben 50} <nil>
	// { 0} eventbus: decode from orders: codec: content type "text/plain", want "application/cbor, application/json"
}

// The amount of an order was in euros and is in cents now. Events of both versions are in
// the topic.
func ExampleVersions() {
	inCents := func(payload []byte) ([]byte, error) {
		var old struct {
			Customer string
			Euros    int
		}
		if err := json.Unmarshal(payload, &old); err != nil {
			return nil, err
		}
		return json.Marshal(Order{old.Customer, 100 * old.Euros})
	}
	orders := eventbus.Topic[Order]{Name: "orders", Codec: codec.Versions{Upcasts: []codec.Upcaster{inCents}}}
	published, err := orders.Event(Order{"ada", 1200})
	if err != nil {
		panic(err)
	}
	fmt.Println(published.ContentType)
	old := &eventbus.Event{ContentType: "application/json", Payload: []byte(`{"Customer":"ben","Euros":3}`)}
	fmt.Println(orders.Decode(old))
	// Output:
	// application/json; version=2
	// {ben 300} <nil>
}

// Payloads over a bound are neither published nor decoded.
func ExampleLimit() {
	notes := eventbus.Topic[string]{Name: "notes", Codec: codec.Limit(10, codec.Raw{Media: "text/plain"})}
	_, err := notes.Event("much too long a note")
	fmt.Println(err)
	// Output: eventbus: encode for notes: codec: payload of 20 bytes, want at most 10
}
