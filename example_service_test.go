package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// serve runs a server and a bus until ctx ends or one of them fails. The order of the end
// matters: requests in flight still publish, so the server shuts down first. If Run had
// ctx, the bus would close under them.
func serve(ctx context.Context, server *http.Server, l net.Listener, bus *eventbus.Bus) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran, served := make(chan error, 1), make(chan error, 1)
	go func() { ran <- bus.Run(running) }()
	go func() { served <- server.Serve(l) }()

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	case failed = <-ran: // a subscription has failed for good
		ran <- nil
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	failed = errors.Join(failed, server.Shutdown(drain)) // waits for the requests in flight
	stop()
	return errors.Join(failed, <-ran) // waits for the handlers, and settles
}

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
	err = serve(ctx, server, l, bus)
	fmt.Println(<-response, err)
	// Output: 202 Accepted <nil>
}
