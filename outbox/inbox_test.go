package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/outbox"
	"github.com/seed41896749/eventbus/outbox/internal/sqltest"
)

func delivery(topic, group, id string) *eventbus.Delivery {
	return &eventbus.Delivery{Event: eventbus.Event{ID: id}, Topic: topic, Group: group}
}

func TestInbox(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		first := func(d *eventbus.Delivery, commit bool) bool {
			tx := r.begin()
			defer tx.Rollback()
			first, err := r.Inbox(tx).First(t.Context(), d)
			require.NoError(t, err)
			if commit {
				require.NoError(t, tx.Commit())
			}
			return first
		}
		strange := "\x00'\n" + strings.Repeat("é", 254)
		require.True(t, first(delivery("orders", "g", strange), false))
		require.True(t, first(delivery("orders", "g", strange), true), "the first transaction was rolled back")
		require.False(t, first(delivery("orders", "g", strange), true))
		require.False(t, first(delivery("orders", "g", strange), true))
		require.True(t, first(delivery("orders", "h", strange), true))
		require.True(t, first(delivery("bills", "g", strange), true))
		require.True(t, first(delivery("orders", "g", strange[:len(strange)-2]), true))
		require.True(t, first(delivery("orders", "g", "a"), true))
		require.True(t, first(delivery("orders", "g", "A"), true))
		require.True(t, first(delivery("orders", "g", "a "), true))
		require.True(t, first(delivery("orders", "g", ""), true))
		require.True(t, first(delivery("orders", "g", ""), true))
		_, err := r.Inbox(db).First(t.Context(), delivery("orders", "g", strings.Repeat("x", 513)))
		require.ErrorIs(t, err, eventbus.ErrTooLarge)
	})
}

// A second handler of the same event waits for the first one, and its work is done if the
// first one fails.
func TestInboxOfTwoHandlers(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"postgres", "mysql"} { // on SQLite one transaction writes at a time
		for _, commits := range []bool{true, false} {
			r := newRig(t, sqltest.New(t, dialect), outbox.Options{})
			one := r.begin()
			first, err := r.Inbox(one).First(t.Context(), delivery("orders", "g", "1"))
			require.NoError(t, err)
			require.True(t, first)
			got := make(chan bool)
			go func() {
				two := r.begin()
				first, err := r.Inbox(two).First(t.Context(), delivery("orders", "g", "1"))
				require.NoError(t, err)
				require.NoError(t, two.Commit())
				got <- first
			}()
			select {
			case <-got:
				require.Fail(t, "the second one did not wait")
			case <-time.After(100 * time.Millisecond):
			}
			if commits {
				require.NoError(t, one.Commit())
			} else {
				require.NoError(t, one.Rollback())
			}
			require.Equal(t, !commits, <-got, dialect)
		}
	}
}

func TestPurgeInbox(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, db *sqltest.Database) {
		r := newRig(t, db, outbox.Options{})
		tx := r.begin()
		for i := range 1100 {
			_, err := r.Inbox(tx).First(t.Context(), delivery("orders", "g", fmt.Sprint(i)))
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		n, err := r.PurgeInbox(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Zero(t, n)
		r.exec(db, "UPDATE eventbus_outbox_inbox SET created = created - 3600000 WHERE event_id <> "+map[string]string{
			"postgres": `'\x37'`, "mysql": "'7'", "sqlite": "x'37'",
		}[db.Dialect])
		n, err = r.PurgeInbox(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Equal(t, 1099, n)
		first, err := r.Inbox(db).First(t.Context(), delivery("orders", "g", "7"))
		require.NoError(t, err)
		require.False(t, first)
		_, err = r.PurgeInbox(t.Context(), -1)
		require.Error(t, err)
	})
}
