package eventbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

type Order struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var orders = eventbus.Topic[Order]{
	Name: "orders", Type: "order.placed", Key: func(o Order) string { return o.Customer },
}

// placeOrder depends on a Publisher and on no broker. Its response says whether the order
// is stored. If the client disconnects, the context ends and so does Publish.
func placeOrder(p eventbus.Publisher) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil {
			http.Error(w, "not an order", http.StatusBadRequest)
			return
		}
		switch err := orders.Publish(r.Context(), p, o); {
		case errors.Is(err, eventbus.ErrBackpressure), errors.Is(err, eventbus.ErrUnavailable):
			http.Error(w, "not stored, try again later", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, "perhaps not stored", http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

func Example_http() {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{WhenFull: eventbus.RejectWhenFull})
	if err != nil {
		panic(err)
	}
	for _, body := range []string{`{"customer":"c-1","cents":1290}`, `three apples`} {
		w := httptest.NewRecorder()
		placeOrder(bus)(w, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)))
		fmt.Println(w.Code)
	}
	fmt.Println(bus.Shutdown(context.Background()))
	// Output:
	// 202
	// 400
	// <nil>
}
