package eventbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

type Purchase struct{ Customer, Item string }

var purchases = eventbus.Topic[Purchase]{
	Name: "shop.purchases", Type: "purchase.made",
	Key: func(p Purchase) string { return p.Customer }, // events of one customer stay in order
}

func Example() {
	ctx := context.Background()
	bus, err := eventbus.Open(ctx, "mem:", eventbus.Options{Service: "shop"}, inmemory.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	paid := make(chan string, 1)
	_, err = purchases.Subscribe(ctx, bus, eventbus.SubscribeOptions{Group: "billing"},
		func(_ context.Context, p Purchase, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("the bank isn't responding") // the event is redelivered a second later
			}
			paid <- fmt.Sprintf("%s pays for %s, attempt %d", p.Customer, p.Item, d.Attempt)
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	if err := purchases.Publish(ctx, bus, Purchase{"ada", "three apples"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-paid)
	if err := bus.Shutdown(ctx); err != nil { // it waits for running handlers
		log.Fatal(err)
	}
	// Output: ada pays for three apples, attempt 2
}

// The URL chooses the backend from the drivers that the program lists.
func ExampleOpen() {
	ctx := context.Background()
	url := os.Getenv("EVENTBUS_URL")
	if url == "" {
		url = "mem:?max_messages=1000"
	}
	bus, err := eventbus.Open(ctx, url, eventbus.Options{Service: "shop"}, inmemory.Driver{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready:", bus.Ready(ctx))
	fmt.Println("ended:", bus.Shutdown(ctx))

	for _, url := range []string{"men:", "redis://user:secret@broker", "mem:?max_mesages=1"} {
		_, err := eventbus.Open(ctx, url, eventbus.Options{}, inmemory.Driver{})
		fmt.Println(err)
	}
	// Output:
	// ready: <nil>
	// ended: <nil>
	// eventbus: url has the scheme "men", which no driver given to Open serves; did you mean mem:?
	// eventbus: url has the scheme "redis", which no driver given to Open serves: add redisstream.Driver{}
	// eventbus: open mem: inmemory: open: unknown parameter "max_mesages"; did you mean "max_messages"?
}

// A service with 16 concurrent handlers, ten seconds for each run, and five attempts. After
// SIGTERM it waits for running handlers, for at most Options.DrainTimeout.
func Example_worker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{DrainTimeout: 20 * time.Second})
	if err != nil {
		panic(err)
	}

	var open sync.WaitGroup
	charge := func(_ context.Context, d *eventbus.Delivery) error {
		if d.Attempt == 1 {
			return errors.New("the bank is busy") // the event is redelivered later
		}
		open.Done()
		return nil
	}
	_, err = bus.Subscribe(ctx, "payments", eventbus.SubscribeOptions{
		Group:       "billing",
		Concurrency: 16,
		Timeout:     10 * time.Second,
		Retry:       eventbus.Retry{MaxAttempts: 5, Initial: 10 * time.Millisecond, Max: time.Minute},
	}, charge)
	if err != nil {
		log.Fatal(err)
	}
	open.Add(100)
	go func() { // another program
		for range 100 {
			if err := bus.Publish(ctx, "payments", &eventbus.Event{Type: "payment.due"}); err != nil {
				log.Fatal(err)
			}
		}
		open.Wait()
		self, _ := os.FindProcess(os.Getpid())
		self.Signal(syscall.SIGTERM)
	}()

	fmt.Println(bus.Run(ctx))
	// Output: <nil>
}

type Order struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var orders = eventbus.Topic[Order]{
	Name: "orders", Type: "order.placed", Key: func(o Order) string { return o.Customer },
}

// placeOrder depends on a Publisher rather than on a bus, so it works with any broker. Its
// response says whether the order is stored. If the client disconnects, the context ends, and
// Publish with it.
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

// A listening server is an http.Server with a listener of its own, so that the example knows its
// address. A program passes an http.Server to Serve.
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
