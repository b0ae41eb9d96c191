package console_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/inmemory"
)

// A program shows the console in its own server, without the numbers of cards.
func ExampleHandler() {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Service: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Shutdown(context.Background())
	pages := console.Handler(bus.Backend(), console.Options{
		Hosts: []string{"shop.example.com"},
		Redact: func(topic string, e *eventbus.Event) {
			if topic == "payments" {
				e.Payload = nil
			}
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/eventbus/", http.StripPrefix("/eventbus", pages))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://shop.example.com/eventbus/", http.NoBody))
	fmt.Println(answer.Code)
	answer = httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "http://shop.example.com/eventbus/", http.NoBody))
	fmt.Println(answer.Code)
	// Output:
	// 200
	// 405
}
