package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

// Ten browsers that look at all pages cost the broker as much as one.
func TestTenBrowsersCostAsMuchAsOne(t *testing.T) {
	cost := func(browsers int) (calls int64) {
		inBubble(t, func(t *testing.T, m *countingBackend) {
			shop(t, m)
			for range 50 {
				numbered(t, m, "orders", 100)
				time.Sleep(time.Second)
			}
			v := visit(t, m, console.Options{})
			v.page("")
			var all sync.WaitGroup
			for range browsers {
				all.Go(func() {
					for range 30 { // each renews its pages every two seconds
						for _, url := range []string{"", "group?topic=orders&name=billing", "topic?name=orders", "topic?name=orders&key=key3", "letters?topic=orders.dlq", "schedule?topic=orders", "lifecycle?topic=orders", "processes", "group?topic=parts&name=g"} {
							code, _ := v.answer(url)
							if code != http.StatusOK {
								t.Errorf("%s: %d", url, code)
							}
						}
						time.Sleep(3100 * time.Millisecond)
					}
				})
			}
			all.Wait()
			calls = m.calls.Load()
		})
		return calls
	}
	one := cost(1)
	require.Greater(t, one, int64(500))
	require.Equal(t, one, cost(10))
}

// A request that renews the figures of a page reads no events.
func TestThePartsOfAPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 100)
		v := visit(t, m, console.Options{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/topic?name=orders", http.NoBody)
		r.Header.Set("Eventbus-Part", "figures")
		p := parse(t, v.ask(r).Body.String())
		require.Len(t, p.cells("Groups"), 1)
		require.Empty(t, p.cells("Events"))
		require.Zero(t, m.events.Load())
	})
}

// The broker goes away while pages are open.
func TestOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		event := v.page("topic?name=orders")
		require.NotContains(t, v.page("").text, "unavailable")
		m.fail(fmt.Errorf("dial tcp: %w", backend.ErrUnavailable))
		time.Sleep(10 * time.Second)

		p := v.page("")
		require.Regexp(t, `Last updated 2\S+ \S+ UTC, \d+s ago: dial tcp: unavailable`, p.text)
		require.Len(t, p.cells("Groups"), 3, "the last figures stay")
		code, body := v.answer("topic?name=orders")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Len(t, parse(t, body).cells("Groups"), 2)
		require.Contains(t, parse(t, body).text, "The broker does not respond.")
		code, _ = v.answer(event.all("a")[linkIndex(event, "event?")].attrs["href"])
		require.Equal(t, http.StatusServiceUnavailable, code)

		m.fail(nil)
		time.Sleep(10 * time.Second)
		require.NotContains(t, v.page("").text, "unavailable")
		require.Len(t, v.page("topic?name=orders").cells("Events"), 25)
	})
}

// The broker is away before the first figures.
func TestNoFiguresYet(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		m.fail(backend.ErrUnavailable)
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("").text, "No data yet: unavailable")
		require.NotContains(t, v.page("").text, "There are no groups")
		code, _ := v.answer("group?topic=orders&name=billing")
		require.Equal(t, http.StatusServiceUnavailable, code)
	})
}
