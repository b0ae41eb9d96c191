package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// addFlat adds an entry as another program does, and returns its ID.
func addFlat(t *testing.T, client *redis.Client, values ...string) string {
	t.Helper()
	id, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Result()
	require.NoError(t, err)
	return id
}

var flat = redisstream.Options{Topics: map[string]redisstream.TopicOptions{topic: {Flat: true, FlatKey: "customer"}}}

// An entry of another program is a message: its ID and fields are the same with each
// delivery and in Read, whatever bytes they have.
func TestFlatEntries(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, server.Client(t), flat)
	s := attach(t, b, config())
	ids := []string{
		addFlat(t, client, "customer", "ada", "customer", "ben", "amount", "12"),
		addFlat(t, client, "event", "not an entry of the bus"),
		addFlat(t, client, "b", "\x00\xff&=%+ \r\n", "", "", "ä", "名"),
	}
	publish(t, b, []*backend.Message{{Topic: topic, ID: "own", Payload: []byte("payload")}})
	want := []backend.Message{
		{ID: ids[0], Key: "ada", Payload: []byte("customer=ada&customer=ben&amount=12")},
		{ID: ids[1], Payload: []byte("event=not+an+entry+of+the+bus")},
		{ID: ids[2], Payload: []byte("b=%00%FF%26%3D%25%2B+%0D%0A&=&%C3%A4=%E5%90%8D")},
		{ID: "own", Payload: []byte("payload")},
	}
	check := func(got []backend.Message) {
		require.Len(t, got, len(want))
		for i, m := range got {
			require.Equal(t, want[i].ID, m.ID)
			require.Equal(t, want[i].Key, m.Key)
			require.Equal(t, string(want[i].Payload), string(m.Payload))
			if m.ID != "own" {
				ms, _, _ := strings.Cut(m.ID, "-")
				at, err := time.Parse(time.RFC3339Nano, m.Headers.Get("ce-time"))
				require.NoError(t, err)
				require.Equal(t, ms, strconv.FormatInt(at.UnixMilli(), 10))
				require.Equal(t, "application/x-www-form-urlencoded", m.Headers.Get("ce-datacontenttype"))
				require.Len(t, m.Headers, 2)
			}
		}
	}
	check(stored(t, b))
	for attempt := 1; attempt <= 2; attempt++ { // take.lua delivers the second
		ds := receive(t, s, len(want))
		got := make([]backend.Message, len(ds))
		delays := make([]backend.Delayed, len(ds))
		for i := range ds {
			require.NoError(t, ds[i].Err)
			require.Equal(t, attempt, ds[i].Attempt)
			got[i], delays[i] = ds[i].Message, backend.Delayed{Delivery: ds[i]}
		}
		check(got)
		require.NoError(t, s.Delay(t.Context(), delays))
	}
}

// The type of a flat entry is one that Publish would accept. An ID that the server did not
// make has no time.
func TestFlatTypes(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	b := open(t, client, redisstream.Options{Topics: map[string]redisstream.TopicOptions{topic: {Flat: true, FlatType: "kind"}}})
	values := []string{"kind", "bad\xff", "kind", "bad\n", "kind", strings.Repeat("x", 513), "kind", "", "kind", "good", "kind", "late"}
	for _, id := range []string{"1-1", "20260302123456-7"} {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: values}).Err())
	}
	for _, m := range stored(t, b) {
		require.Equal(t, "good", m.Headers.Get("ce-type"))
		require.Empty(t, m.Headers.Get("ce-time"))
	}
}

// The ID of a flat entry may be in a field. An entry without a usable value there has its own
// ID, and each keeps its time.
func TestFlatIDs(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	b := open(t, client, redisstream.Options{Topics: map[string]redisstream.TopicOptions{topic: {Flat: true, FlatID: "number"}}})
	addFlat(t, client, "number", "", "number", "o-1", "number", "o-2")
	own := addFlat(t, client, "number", strings.Repeat("x", 513), "number", "bad\n")
	ms := stored(t, b)
	require.Equal(t, "o-1", ms[0].ID)
	require.Equal(t, "number=&number=o-1&number=o-2", string(ms[0].Payload))
	require.Equal(t, own, ms[1].ID)
	for _, m := range ms {
		require.NotEmpty(t, m.Headers.Get("ce-time"))
	}
}

// The error for an entry that cannot be read says how to write it, and such an entry is read. Names
// of attributes may be in any case, and an unknown escape stands for itself.
func TestUnreadableEntriesSayWhy(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	b := open(t, client, redisstream.Options{})
	s := attach(t, b, config())
	for _, example := range []struct{ name, value, want string }{
		{"event", `{"a":1}`, `an empty line is missing before the payload; without attributes the value of the field event begins with it, as in XADD … event $'\n{"a":1}'`},
		{"event", "{\"a\":\n1}\n\n", `is missing before the payload; without attributes the value of the field event begins with it, as in XADD … event $'\n{"a":1}' ("{\"a\":" is no attribute)`},
		{"event", ":Time: now\n\nx", `":Time" is not an attribute that it may have`},
		{"body", "x", "it has other fields than one named event; for entries of other programs, the topic needs the setting flat"},
	} {
		addFlat(t, client, example.name, example.value)
		d := receive(t, s, 1)[0]
		require.ErrorContains(t, d.Err, "not an entry of the bus: ")
		require.ErrorContains(t, d.Err, example.want)
		require.NoError(t, s.Ack(t.Context(), backend.Lend([]backend.Delivery{d})))
	}
	addFlat(t, client, "event", "\n{\"a\":1}")
	addFlat(t, client, "event", ":ID: 7%\n:KEY: 100%\nce-subject: a%zz\\q\n\n")
	ds := receive(t, s, 2)
	require.NoError(t, ds[0].Err)
	require.Equal(t, `{"a":1}`, string(ds[0].Payload))
	require.NoError(t, ds[1].Err)
	require.Equal(t, "7%", ds[1].ID)
	require.Equal(t, "100%", ds[1].Key)
	require.Equal(t, `a%zz\q`, ds[1].Headers.Get("ce-subject"))
}

// In a topic without the setting Flat an entry of another program is unreadable.
func TestEntriesOfOthersAreUnreadable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, server.Client(t), redisstream.Options{Topics: map[string]redisstream.TopicOptions{"another": {Flat: true}, topic: {}}})
	s := attach(t, b, config())
	addFlat(t, server.Client(t), "customer", "ada")
	ds := receive(t, s, 1)
	require.Error(t, ds[0].Err)
	require.Equal(t, "customer=ada\n", string(ds[0].Payload))
}

// A struct with tags reads the entries of another program: retries, dead letters and the
// order of keys are as for the bus's own events.
func TestFlatEntriesAreEvents(t *testing.T) {
	t.Parallel()
	type payment struct {
		Customer string `field:"customer"`
		Cents    int    `field:"amount"`
	}
	payments := eventbus.Topic[payment]{Name: topic, Key: func(p payment) string { return p.Customer }, Codec: codec.Fields{}}
	server := redistest.Start(t)
	u, err := url.Parse("redis://" + server.Addr())
	require.NoError(t, err)
	d, err := redisstream.Driver{}.ConfigureTopic(topic, map[string]string{"flat": "true", "flat_id": "number", "flat_key": "customer", "flat_type": "kind"})
	require.NoError(t, err)
	bus, err := eventbus.Open(t.Context(), u.String(), eventbus.Options{}, d)
	require.NoError(t, err)
	client := server.Client(t)
	first := addFlat(t, client, "customer", "ada", "amount", "1")
	addFlat(t, client, "customer", "ada", "amount", "2")
	bad := addFlat(t, client, "customer", "ben", "amount", "much", "kind", "refund", "kind", "ignored")
	require.NoError(t, payments.Publish(t.Context(), bus, payment{"ada", 3}))

	handled := make(chan string, 9)
	o := eventbus.SubscribeOptions{Group: workers, Lease: lease, Retry: eventbus.Retry{Initial: 50 * time.Millisecond}, Concurrency: 4}
	_, err = bus.Subscribe(t.Context(), topic, o, payments.Handler(func(_ context.Context, p payment, d *eventbus.Delivery) error {
		if d.ID == first && d.Attempt == 1 {
			return errors.New("later")
		}
		handled <- p.Customer + string(rune('0'+p.Cents))
		return nil
	}))
	require.NoError(t, err)
	dead := make(chan eventbus.Delivery, 9)
	_, err = bus.Subscribe(t.Context(), topic+".dlq", eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters},
		func(_ context.Context, d *eventbus.Delivery) error { dead <- *d; return nil })
	require.NoError(t, err)
	for _, want := range []string{"ada1", "ada2"} {
		require.Equal(t, want, <-handled)
	}
	require.Equal(t, "ada3", <-handled, "an event that the bus has published in the same form")
	l := <-dead
	require.Equal(t, "customer=ben&amount=much&kind=refund&kind=ignored", string(l.Payload))
	require.Equal(t, "refund", l.Type)
	require.WithinDuration(t, time.Now(), l.Time, time.Minute)
	why, ok := eventbus.DeadLetterOf(&l.Event)
	require.True(t, ok)
	require.Equal(t, bad, why.ID)
	require.Contains(t, why.Error, `field "amount": not of type int: invalid syntax`)
	require.NoError(t, bus.Shutdown(t.Context()))
}

// Wrong settings are refused with an error that names them.
func TestTopicSettings(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		topic    string
		settings map[string]string
		reason   string
	}{
		{"orders", map[string]string{"flat": "yes"}, `redisstream: configure orders: setting "flat": `},
		{"orders", map[string]string{"flatt": "true"}, `unknown setting "flatt"; did you mean "flat"?`},
		{"orders", map[string]string{"flat_key": "customer"}, "flat_id, flat_key, flat_type or flat_publish is given without flat"},
		{"a b", map[string]string{"flat": "true"}, "the topic "},
		{"twice", map[string]string{"flat": "true"}, "the topic is configured already"},
	} {
		d, err := redisstream.Driver{}.ConfigureTopic("twice", nil)
		require.NoError(t, err)
		_, err = d.(backend.TopicConfigurer).ConfigureTopic(row.topic, row.settings)
		require.ErrorContains(t, err, row.reason)
	}
	client := redis.NewClient(&redis.Options{Addr: "nowhere.invalid:1"})
	defer client.Close()
	_, err := redisstream.New(client, redisstream.Options{Topics: map[string]redisstream.TopicOptions{"orders": {FlatKey: "x"}}})
	require.EqualError(t, err, `redisstream: new: topic "orders": flat_id, flat_key, flat_type or flat_publish is given without flat`)
}

var flatPublish = redisstream.Options{Topics: map[string]redisstream.TopicOptions{topic: {Flat: true, FlatPublish: true}}}

// With FlatPublish the fields of a payload are fields of the entry, and a program without the
// option reads the same event. A payload without such fields is stored in the usual form.
func TestFlatPublish(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	type payment struct {
		Customer string `field:"customer_id"`
		Cents    int    `field:"amount"`
	}
	for _, once := range []bool{false, true} { // an XADD, and publish.lua
		require.NoError(t, client.FlushAll(t.Context()).Err())
		b := open(t, server.Client(t), flatPublish)
		payload, err := codec.Fields{}.Marshal(payment{"ada & ben", 1200})
		require.NoError(t, err)
		many := strings.Repeat("a=1&", 99) + "a=1"
		ms := []*backend.Message{
			{Payload: payload, Key: "k\n", Headers: backend.Headers{{Name: "ce-type", Value: "payment"}, {Name: "own", Value: "x: y"}}},
			{Payload: []byte("a=&=b&a=%00%FF%3A&%C3%A4=+")},
			{Payload: []byte(many)},
			{Payload: []byte("event=x")},
			{Payload: []byte(many + "&b=2")}, // the usual form, from here on
			{Payload: []byte("a=1&&b=2")},
			{Payload: []byte("a=%zz")},
			{Payload: []byte("a=%20")},
			{Payload: []byte("%3Aevent=x")},
			{Payload: nil},
			{Payload: payload},
		}
		for i, m := range ms {
			m.Topic, m.ID, m.Once = topic, fmt.Sprint(i), once
			if i < len(ms)-1 {
				m.Headers.Set("ce-datacontenttype", "application/x-www-form-urlencoded")
			}
		}
		publish(t, b, ms)
		entries, err := client.XRange(t.Context(), stream, "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, entries, len(ms))
		require.Equal(t, map[string]any{
			"customer_id": "ada & ben", "amount": "1200",
			":event": ":id: 0\n:key: k\\n\nce-type: payment\nown: x: y\nce-datacontenttype: application/x-www-form-urlencoded\n\n",
		}, entries[0].Values)
		for i, e := range entries {
			_, split := e.Values[":event"]
			require.Equal(t, i < 4, split, i)
		}
		for _, o := range []redisstream.Options{flatPublish, flat, {}} {
			got := stored(t, open(t, server.Client(t), o))
			require.Len(t, got, len(ms))
			for i, m := range got {
				require.Equal(t, ms[i].ID, m.ID)
				require.Equal(t, ms[i].Key, m.Key)
				require.Equal(t, string(ms[i].Payload), string(m.Payload))
				require.Equal(t, ms[i].Headers, m.Headers)
			}
		}
	}
}

// An entry whose last field has the name of the second form, but not its value, is an entry of
// another program.
func TestFlatEntryThatLooksSplit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	values := []string{"a", "1", ":event", ":id: x\n"}
	id := addFlat(t, client, values...)
	addFlat(t, client, "a", "1", ":event", ":id: x\n\nmore")
	got := stored(t, open(t, server.Client(t), flat))
	require.Len(t, got, 2)
	require.Equal(t, id, got[0].ID)
	for _, m := range got {
		fields, err := url.ParseQuery(string(m.Payload))
		require.NoError(t, err)
		require.Equal(t, "1", fields.Get("a"))
		require.Contains(t, fields, ":event")
	}
}

// Entries of other programs are delivered unchanged, with an error.
func TestForeignEntriesAreHandedOutRaw(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	s := attach(t, b, config())
	add := func(values ...any) {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Err())
	}
	add("event", "no entry")
	add("body", "one field, another name")
	add("a", "1", "event", "\n", "b", "")
	add("event", ":strange: x\n\npayload")
	add("", "")
	publish(t, b, batch("ours", 1))
	want := []string{"no entry", "body=one field, another name\n", "a=1\nevent=\n\nb=\n", ":strange: x\n\npayload", "=\n"}
	ds := receive(t, s, len(want)+1)
	for i, text := range want {
		require.Error(t, ds[i].Err, text)
		require.NotErrorIs(t, ds[i].Err, backend.ErrGone)
		require.Equal(t, text, string(ds[i].Payload))
		require.Empty(t, ds[i].ID+ds[i].Key)
		require.Empty(t, ds[i].Headers)
		require.Equal(t, 1, ds[i].Attempt)
		require.Len(t, ds[i].Position, 35)
	}
	require.NoError(t, ds[len(want)].Err)

	// They are redelivered as any message, and can be read and settled.
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[1]}}))
	again := receive(t, s, 1)
	require.Error(t, again[0].Err)
	require.Equal(t, want[1], string(again[0].Payload))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(append(ds, again...))))
	all := stored(t, b)
	for i, text := range want {
		require.Equal(t, text, string(all[i].Payload))
	}
}
