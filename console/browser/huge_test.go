package browser_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A topic is larger than a request may read. Its pages open, are small themselves, and take little
// memory. By default it is of 160 MiB, and a request reads at most 128 MiB. EVENTBUS_CONSOLE_MIB sets
// another size; with 1024 the test needs two GiB of memory.
func TestHugeTopic(t *testing.T) {
	t.Parallel()
	binary(t)
	mebibytes := 160
	if text := os.Getenv("EVENTBUS_CONSOLE_MIB"); text != "" {
		var err error
		mebibytes, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	b := openURL(t, redisstream.Driver{}, redistest.Start(t, redistest.WithoutAOF()).URL())
	payload := bytes.Repeat([]byte("<b>large</b> "), (1<<20)/13)
	for i := range mebibytes {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: ordersTopic, ID: fmt.Sprint("e-", i), Key: "k", Payload: payload}}))
	}
	w := newTab(t, serve(t, console.Handler(b, quick)).origin())
	w.expect("log: error network: Failed to load resource: the server responded with a status of 503")

	largest := watchHeap(t)
	w.open("")
	require.Contains(t, w.text(".names"), ordersTopic)
	for _, page := range []struct{ url, text string }{
		{"topic?name=" + ordersTopic, fmt.Sprint("e-", mebibytes-1)},
		{"topic?name=" + ordersTopic + "&order=oldest", "e-0"},
		{"topic?name=" + ordersTopic + "&id=nothing", "Continue the search"},
		{"letters?topic=" + ordersTopic, "dead letters"},
	} {
		var began time.Time
		w.until("the page shows "+page.text, func() bool { // a busy machine may need another attempt
			began = time.Now()
			w.open(page.url)
			return strings.Contains(w.text("main"), page.text)
		})
		t.Logf("%s: %v", page.url, time.Since(began).Round(time.Millisecond))
	}
	w.open("topic?name=" + ordersTopic + "&order=oldest")
	w.click(w.rows("Events of")[0]["Position"])
	require.Contains(t, w.text("main"), "more are not shown")
	require.Less(t, eval[int](w, "document.documentElement.outerHTML.length"), 200_000)
	w.quiet()
	t.Logf("%d MiB of events: at most %d MiB of memory", mebibytes, largest()>>20)
	require.Less(t, largest(), uint64(256<<20))
}

// watchHeap returns a function that tells the largest heap of the process since watchHeap was called.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	largest, asked, done := make(chan uint64), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		var most uint64
		for {
			select {
			case <-tick.C:
				metrics.Read(sample)
				most = max(most, sample[0].Value.Uint64())
			case largest <- most:
			case <-asked:
				return
			}
		}
	}()
	t.Cleanup(func() { close(asked); <-done })
	return func() uint64 { return <-largest }
}
