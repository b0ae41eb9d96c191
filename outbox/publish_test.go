package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

// Promise 1: an event is published if and only if its transaction has committed.
func TestPublishedIfCommitted(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		r.relay(r.bus)
		tx := r.begin()
		require.NoError(t, r.In(tx).Publish(t.Context(), "orders", event("rolled back", "k")))
		require.NoError(t, tx.Rollback())
		tx = r.begin()
		require.NoError(t, r.In(tx).Publish(t.Context(), "orders", event("1", "k"), event("2", "")))
		require.NoError(t, r.In(tx).Publish(t.Context(), "orders", event("3", "k")))
		time.Sleep(50 * time.Millisecond)
		require.Empty(t, r.stored("orders"), "the transaction has not committed")
		require.NoError(t, tx.Commit())
		r.await("orders", "1", "2", "3")
		r.empty()
		require.EqualValues(t, 3, r.Counts().Published)
	})
}

// All fields of an event arrive unchanged, including text with characters that SQL or a
// database treats specially, and so do many events of one call.
func TestEventsArriveUnchanged(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{Service: "writer"})
		at := time.Date(2026, 11, 26, 12, 30, 0, 123456789, time.UTC)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		want := []*eventbus.Event{
			{
				ID: `o'1"; DROP TABLE x; -- \ % _ 🎉`, Key: strings.Repeat("é", 256), Type: "order.placed", Subject: "s", ContentType: "text/plain",
				Time: at, TTL: time.Hour, Retry: &eventbus.RetryRule{MaxAttempts: 3}, Payload: all,
				Headers: eventbus.Headers{{Name: "a", Value: `<&>"\é`}},
			},
			{ID: "key ", Key: "K", Source: "other", Time: at},
			{ID: "key", Key: "k ", Source: "other", Time: at},
		}
		for i := range 250 {
			want = append(want, &eventbus.Event{ID: fmt.Sprint("many-", i), Key: "k", Time: at, Source: "s"})
		}
		r.commit("orders", want...)
		r.relay(r.bus)
		r.empty()
		got := r.stored("orders")
		require.Len(t, got, len(want))
		want[0].Source = "writer"
		for i, e := range got {
			e.Position = ""
			if len(e.Payload) == 0 {
				e.Payload = nil
			}
			require.Equal(t, *want[i], e)
		}
	})
}

// The database keeps any bytes in an ID, even ones that this version's Publish refuses.
func TestControlCharacters(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		r.relay(r.bus)
		tx := r.begin()
		strange := "a\x00b\x01\x7f\n"
		_, err := tx.ExecContext(t.Context(), map[string]string{
			"postgres": `INSERT INTO eventbus_outbox (topic, event_id, event_key, headers, payload, created) VALUES ('orders', $1, $2, '{}', '', 0)`,
			"mysql":    "INSERT INTO eventbus_outbox (topic, event_id, event_key, headers, payload, created) VALUES ('orders', ?, ?, '{}', '', 0)",
			"sqlite":   "INSERT INTO eventbus_outbox (topic, event_id, event_key, headers, payload, created) VALUES ('orders', ?, ?, '{}', '', 0)",
		}[db.Dialect], []byte(strange), []byte(strange))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Eventually(t, func() bool { return r.Counts().Refused == 1 }, 10*time.Second, time.Millisecond)
		for refused, err := range r.Refused(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, strange, refused.Event.ID)
			require.Equal(t, strange, refused.Event.Key)
			require.Contains(t, refused.Reason, "control character")
		}
	})
}

// Publish checks all events before it inserts one, as the Publish of a bus does. It changes
// no event.
func TestPublishChecks(t *testing.T) {
	t.Parallel()
	r := newRig(t, sqltest.New(t, "sqlite"), outbox.Options{})
	good, bad := event("", ""), event(strings.Repeat("x", 513), "")
	for name, c := range map[string]struct {
		topic  string
		events []*eventbus.Event
		text   string
	}{
		"topic":     {"no spaces", []*eventbus.Event{good}, "eventbus: topic "},
		"event":     {"orders", []*eventbus.Event{good, bad}, "eventbus: events[1].ID has 513 bytes"},
		"nil":       {"orders", []*eventbus.Event{nil}, "eventbus: events[0] is nil"},
		"too large": {"orders", []*eventbus.Event{{Payload: make([]byte, eventbus.MaxPayload+1)}}, "eventbus: events[0].Payload has "},
	} {
		err := r.In(r.db).Publish(t.Context(), c.topic, c.events...)
		require.ErrorContains(t, err, c.text, name)
	}
	require.Zero(t, r.waiting())
	require.Error(t, r.In(nil).Publish(t.Context(), "orders", good))
	require.NoError(t, r.In(r.db).Publish(t.Context(), "orders"))
	require.NoError(t, r.In(r.db).Publish(t.Context(), "orders", good))
	require.Equal(t, event("", ""), good)
	r.relay(r.bus)
	r.empty()
	e := r.stored("orders")[0]
	require.Len(t, e.ID, 36)
	require.WithinDuration(t, time.Now(), e.Time, time.Minute)
	require.Equal(t, "relay", e.Source)
}

// A payload of the largest size passes, and many of them pass too, in several statements and
// several reads. A read has a bound in bytes.
func TestLargePayloads(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		var events []*eventbus.Event
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprint(i))
			events = append(events, &eventbus.Event{ID: ids[i], Key: "k", Payload: make([]byte, eventbus.MaxPayload)})
		}
		r.commit("orders", events...)
		r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			if size := len(events) * eventbus.MaxPayload; size > 9<<20 {
				t.Errorf("a read has %d bytes", size)
			}
			return r.bus.Publish(ctx, topic, events...)
		}))
		r.await("orders", ids...)
		r.empty()
	})
}

func TestOptions(t *testing.T) {
	db := sqltest.New(t, "sqlite").DB
	for name, o := range map[string]outbox.Options{
		"Options.Table":   {Table: `x"; DROP TABLE y; --`},
		"Options.Table ":  {Table: "a.b.c"},
		"Options.Table  ": {Table: strings.Repeat("x", 41)},
		"Options.Poll":    {Poll: -1},
		"Options.Batch":   {Batch: 10_001},
		"Options.Lease":   {Lease: time.Millisecond},
		"Options.Service": {Service: "a\x00"},
	} {
		_, err := outbox.New(db, outbox.SQLite, o)
		require.ErrorContains(t, err, "eventbus: "+strings.TrimSpace(name)+" ")
	}
	_, err := outbox.New(db, "oracle", outbox.Options{})
	require.ErrorContains(t, err, "dialect")
	_, err = outbox.New(nil, outbox.SQLite, outbox.Options{})
	require.ErrorContains(t, err, "db is nil")
	_, err = outbox.Schema(outbox.SQLite, "x y")
	require.Error(t, err)
	_, err = outbox.Schema("oracle", "")
	require.Error(t, err)
}

// A table may have another name and a schema, and a name that is a word of SQL.
func TestTableNames(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		table := map[string]string{"postgres": "shop.Select", "mysql": "select", "sqlite": "main.Select"}[db.Dialect]
		if db.Dialect == "postgres" {
			_, err := db.ExecContext(t.Context(), "CREATE SCHEMA shop")
			require.NoError(t, err)
		}
		r := newRig(t, db, outbox.Options{Table: table})
		r.relay(r.bus)
		r.commit("orders", event("1", "k"))
		r.await("orders", "1")
		_, err := r.Inbox(db).First(t.Context(), &eventbus.Delivery{Event: *event("1", ""), Topic: "orders", Group: "g"})
		require.NoError(t, err)
	})
}

// A repeated event has the same ID, so a bus with Dedup stores it once.
func TestDoublesHaveTheSameID(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		for _, dedup := range []bool{false, true} {
			r := newRig(t, db, outbox.Options{Table: fmt.Sprint("dedup_", dedup)})
			bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Dedup: dedup})
			require.NoError(t, err)
			defer bus.Shutdown(t.Context())
			calls := 0
			stop := r.relay(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
				err := bus.Publish(ctx, topic, events...)
				if calls++; calls == 1 {
					return fmt.Errorf("the answer is lost: %w", backend.ErrUnknownOutcome)
				}
				return err
			}))
			r.commit("orders", &eventbus.Event{Key: "k"}, &eventbus.Event{Key: "k"}, &eventbus.Event{Key: "k"})
			r.empty()
			stop()
			ms, err := backend.Read(t.Context(), bus.Backend(), "orders", "", 100)
			require.NoError(t, err)
			if dedup {
				require.Len(t, ms, 3)
				continue
			}
			require.Len(t, ms, 6)
			for i := range 3 {
				require.Equal(t, ms[i].ID, ms[i+3].ID)
			}
		}
	})
}
