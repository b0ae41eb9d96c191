package eventbus_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// A URL chooses the backend among the drivers that the program lists.
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
