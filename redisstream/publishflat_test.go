package redisstream_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

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

// An event is stored at the position that its publisher gives, if it is greater than those before,
// and otherwise refused alone.
func TestAtPosition(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, dedup := range []bool{false, true} { // an XADD, and publish.lua
		bus, err := eventbus.Open(t.Context(), server.URL(), eventbus.Options{Dedup: dedup}, redisstream.Driver{})
		require.NoError(t, err)
		topic := fmt.Sprint("positions.", dedup)
		events := []*eventbus.Event{
			{AtPosition: "1700000000000-7"},
			{AtPosition: "1700000000000-7"},
			{AtPosition: "01700000000001-00000000000000000000"},
			{AtPosition: "1600000000000-0"},
			{AtPosition: "yesterday"},
			{},
		}
		receipts, err := bus.PublishReceipts(t.Context(), topic, events...)
		require.Len(t, receipts, len(events))
		var failed *eventbus.PublishError
		require.ErrorAs(t, err, &failed)
		for i, refused := range []bool{false, true, false, true, true, false} {
			if refused {
				require.ErrorIs(t, failed.Errors[i], backend.ErrRefused, i)
			} else {
				require.NoError(t, failed.Errors[i], i)
			}
		}
		require.Equal(t, "01700000000000-00000000000000000007", receipts[0].Position)
		require.Equal(t, "01700000000001-00000000000000000000", receipts[2].Position)
		require.Greater(t, receipts[5].Position, receipts[2].Position)
		var field *eventbus.FieldError
		_, err = eventbus.MessageOf(topic, events[0])
		require.ErrorAs(t, err, &field)
		require.ErrorAs(t, bus.PublishIn(t.Context(), topic, time.Hour, events[0]), &field)
		require.Equal(t, "events[0].AtPosition", field.Field)
		require.NoError(t, bus.Shutdown(t.Context()))
	}
}
