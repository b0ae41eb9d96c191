package console_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/lifecycle"
)

// ids returns the ids of the events of a page.
func (p page) ids() (ids []string) {
	for _, row := range p.cells("Events") {
		ids = append(ids, row["ID"])
	}
	return ids
}

// walk follows a link from page to page, and returns all ids.
func walk(v visitor, at, link string) (ids []string) {
	for at != "" {
		p := v.page(at)
		require.LessOrEqual(v.t, len(p.ids()), 25, "of one page")
		ids = append(ids, p.ids()...)
		at = p.link(link)
	}
	return ids
}

// A topic is walked from either end. Each event is there once, in its order, however the events are
// spread in time.
func TestBrowsing(t *testing.T) {
	for name, between := range map[string]func(i int) time.Duration{
		"one a second":       func(int) time.Duration { return time.Second },
		"a burst, long ago":  func(i int) time.Duration { return []time.Duration{0, 400 * 24 * time.Hour}[i/499] },
		"ever more":          func(i int) time.Duration { return time.Hour / time.Duration(i*i+1) },
		"ever fewer":         func(i int) time.Duration { return time.Duration(i*i) * time.Millisecond },
		"by chance":          func(int) time.Duration { return time.Duration(rand.Int64N(1 << rand.IntN(42))) },
		"ten a microsecond":  func(int) time.Duration { return 100 },
		"thirty in a moment": func(i int) time.Duration { return time.Duration(i%30/29) * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				const n = 500
				var want []string
				for i := range n {
					require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: fmt.Sprint("e-", i)}}))
					want = append(want, fmt.Sprint("e-", i))
					time.Sleep(between(i))
				}
				v := visit(t, m, console.Options{})
				got := walk(v, "topic?name=orders&order=oldest", "Newer events")
				require.Equal(t, want, got)
				got = walk(v, "topic?name=orders", "Older events")
				for i := range got {
					require.Equal(t, want[n-1-i], got[i])
				}
				require.Len(t, got, n)
			})
		})
	}
}

// The newest events of a topic are found although a request cannot read the whole topic, and however
// large the events are.
func TestBrowsingLargeEvents(t *testing.T) {
	for _, size := range []int{100 << 10, 1 << 20, 4 << 20} {
		inBubble(t, func(t *testing.T, m *countingBackend) {
			n := (48 << 20) / size // several pages, each bounded by its bytes
			body := make([]byte, size)
			for i := range n {
				require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: fmt.Sprint("e-", i), Payload: body}}))
				time.Sleep(10 * time.Millisecond)
			}
			got := walk(visit(t, m, console.Options{}), "topic?name=orders", "Older events")
			require.Len(t, got, n, "of %d bytes", size)
			for i := range got {
				require.Equal(t, fmt.Sprint("e-", n-1-i), got[i])
			}
		})
	}
}

func TestSince(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		for i := range 100 {
			require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: fmt.Sprint("e-", i)}}))
			time.Sleep(time.Minute)
		}
		v := visit(t, m, console.Options{})
		for _, since := range []string{"10m ago", "10m", time.Now().Add(-10 * time.Minute).Format(time.RFC3339)} {
			require.Equal(t, "e-90", v.page("topic?name=orders&since=" + url.QueryEscape(since)).ids()[0], since)
		}
		p := v.page("topic?name=orders&since=10m&id=e-95")
		require.Equal(t, []string{"e-95"}, p.ids())
		require.Contains(t, p.text, "1 event found among 10 events")
	})
}

// A search finds twelve of many events, in steps of bounded size.
func TestSearch(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		const n = 20_000
		var want []string
		for i := range n {
			e := &backend.Message{Topic: "orders", ID: fmt.Sprint("e-", i), Key: "other", Headers: backend.Headers{{Name: "ce-type", Value: "order.placed"}}}
			if i%1667 == 5 {
				e.Key, e.Headers = "twelve", backend.Headers{{Name: "ce-type", Value: "order.lost"}, {Name: "region", Value: "north"}}
				want = append(want, e.ID)
			}
			require.NoError(t, m.Publish(t.Context(), []*backend.Message{e}))
		}
		require.Len(t, want, 12)
		v := visit(t, m, console.Options{})
		for _, query := range []string{"key=twelve", "type=order.lost", "header=region", "header=region&value=north", "value=north", "key=twelve&type=order.lost&header=region"} {
			require.Equal(t, want, walk(v, "topic?name=orders&"+query, "Continue the search"), query)
		}
		require.Equal(t, want[3:4], walk(v, "topic?name=orders&id="+want[3], "Continue the search"))
		for _, query := range []string{"key=TWELVE", "header=Region", "header=region&value=south", "id=e", "key=twelve&type=order.placed"} {
			require.Empty(t, walk(v, "topic?name=orders&"+query, "Continue the search"), query)
		}
		p := v.page("topic?name=orders&type=order.placed")
		require.Len(t, p.ids(), 25, "a page is full")
		require.NotEmpty(t, p.link("Continue the search"))
	})
}

// A request reads a bounded part of a topic that is as large as one likes.
func TestARequestIsBounded(t *testing.T) {
	const mostEvents, mostBytes, mostReads = 5000, 128 << 20, 151
	for name, fill := range map[string]func(t *testing.T, m *countingBackend){
		"very many events": func(t *testing.T, m *countingBackend) {
			for i := range 120 {
				numbered(t, m, "orders", 500)
				time.Sleep(time.Duration(i) * time.Second)
			}
		},
		"a burst of one moment": func(t *testing.T, m *countingBackend) { numbered(t, m, "orders", 30_000) },
		"very large events": func(t *testing.T, m *countingBackend) {
			body := make([]byte, 4<<20) // the memory keeps a copy
			for range 150 {
				require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: body}}))
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				fill(t, m)
				v := visit(t, m, console.Options{})
				v.page("")
				time.Sleep(time.Minute) // no figures are taken now
				for _, at := range []string{
					"topic?name=orders", "topic?name=orders&order=oldest", "topic?name=orders&key=none", "topic?name=orders&before=zzzz",
					"topic?name=orders&from=after+00000000000000000007&key=none", "event?topic=orders&from=&at=zzzz", "topic?name=orders&since=1h&value=x",
					"lifecycle?topic=orders", "schedule?topic=orders",
				} {
					m.events.Store(0)
					m.bytes.Store(0)
					m.reads.Store(0)
					code, body := v.answer(at)
					require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusNotFound, http.StatusBadRequest}, code, at)
					require.LessOrEqual(t, m.events.Load(), int64(mostEvents), at)
					require.LessOrEqual(t, m.bytes.Load(), int64(mostBytes+16<<20), at)
					require.LessOrEqual(t, m.reads.Load(), int64(mostReads), at)
					require.Less(t, len(body), 256<<10, "what is shown is small too")
				}
			})
		})
	}
}

// The same pages on a file.
func TestBolt(t *testing.T) {
	b, err := bolt.Open(t.Context(), t.TempDir()+"/events.db", bolt.Options{})
	require.NoError(t, err)
	defer b.Close()
	attach(t, b, "orders", "billing")
	numbered(t, b, "orders", 200)
	bury(t, b, "orders.dlq", "e-1", map[string]string{"eventbus-dead-reason": "exhausted", "eventbus-dead-group": "billing"})
	bus := openBus(t, b, eventbus.Options{})
	scheduleEvents(t, bus, "orders", 0, 30)
	require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "orders", Cron: "@daily"}))
	end(t, bus)
	note(t, b, lifecycle.Record{State: lifecycle.Retried, Group: "billing", ID: "e-1", Attempt: 1, Error: "no answer"})
	v := visit(t, b, console.Options{})
	p := v.page("schedule?topic=orders")
	require.Equal(t, "30", p.figure("Waiting events"))
	require.Equal(t, "e-29", p.cells("Scheduled events")[0]["ID"])
	require.Contains(t, v.page(p.link(p.cells("Scheduled events")[0]["Due"])).text, "ID e-29")
	require.Equal(t, "@daily", p.cells("Recurring events")[0]["Schedule"])
	require.Equal(t, "no answer", v.page("lifecycle?topic=orders").cells("Lifecycle records")[0]["Error or reason"])
	require.Equal(t, "e-1", v.page("group?topic=orders&name=billing").cells("Events waiting for")[0]["Event"])
	require.Equal(t, "200", v.page("").cells("Groups")[0]["Lag"])
	require.Equal(t, "1", v.page("").cells("Groups")[0]["Dead letters"])
	require.Len(t, walk(v, "topic?name=orders", "Older events"), 200)
	require.Len(t, walk(v, "topic?name=orders&key=key3", "Continue the search"), 29)
	require.Len(t, v.page("letters?topic=orders.dlq").cells("Classes"), 1)
}

func TestAPayloadIsCut(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		for _, payload := range []string{strings.Repeat("<b>&", 1<<18), strings.Repeat("\x00\xff", 1<<18), "[" + strings.Repeat("1,", 1<<18) + "1]", strings.Repeat("[", 9000) + strings.Repeat("]", 9000)} {
			headers := backend.Headers{}
			for i := range 400 {
				headers.Set(fmt.Sprint("h", i), strings.Repeat("v", 100))
			}
			headers.Set("h0", strings.Repeat("long", 100_000))
			require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: []byte(payload), Headers: headers}}))
		}
		v := visit(t, m, console.Options{})
		p := v.page("topic?name=orders")
		for _, a := range p.all("a") {
			if strings.HasPrefix(a.attrs["href"], "event?") {
				for _, as := range []string{"", "json", "text", "cbor", "hex", "other"} {
					code, body := v.answer(a.attrs["href"] + "&as=" + as)
					require.Equal(t, http.StatusOK, code)
					require.Less(t, len(body), 1<<20)
					require.True(t, strings.Contains(parse(t, body).text, " 200 more headers"), as)
				}
			}
		}
	})
}
