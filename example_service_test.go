package eventbus_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// An http.Server usually listens by itself. This one has a listener, so that the example
// knows its address.
type listening struct {
	*http.Server
	on net.Listener
}

func (l listening) ListenAndServe() error { return l.Serve(l.on) }

func Example_service() {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{DrainTimeout: 20 * time.Second})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ctx, terminate := context.WithCancel(context.Background()) // signal.NotifyContext in a program
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		terminate() // SIGTERM comes while a request is in flight
		time.Sleep(50 * time.Millisecond)
		if err := bus.Publish(r.Context(), "orders", &eventbus.Event{}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})}
	response := make(chan string, 1)
	go func() {
		r, err := http.Post("http://"+l.Addr().String(), "", nil)
		if err != nil {
			response <- err.Error()
			return
		}
		response <- r.Status
		_ = r.Body.Close()
	}()
	err = bus.Serve(ctx, listening{server, l}) // ends the server first, because requests in flight publish
	fmt.Println(<-response, err)
	// Output: 202 Accepted <nil>
}
