package pages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pages"
)

// At finds each message of a topic in a few small reads, however old it is and however many there are.
func TestAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := filled(t, 0, 0)
		var all []string
		for i := range 3000 {
			msg := &backend.Message{Topic: "orders"}
			require.NoError(t, m.Publish(t.Context(), []*backend.Message{msg}))
			all = append(all, msg.Position)
			if i%3 == 0 { // some have the time of another one
				time.Sleep(time.Duration(i) * time.Millisecond)
			}
			if i%500 == 0 {
				time.Sleep(24 * time.Hour)
			}
		}
		at := func(position string) (*backend.Message, backend.Start, error) {
			m.asked = nil
			r := &pages.Reader{Backend: m, Topic: "orders", Bounds: &pages.Bounds{Calls: 1000, Events: 10_000, Bytes: 1 << 30}, Timeout: time.Second}
			got, err := r.At(t.Context(), position)
			return got, r.From, err
		}
		for i := 0; i < len(all); i += 7 {
			got, next, err := at(all[i])
			require.NoError(t, err)
			require.Equal(t, all[i], got.Position)
			require.Equal(t, backend.StartAfter(all[i]), next)
			require.Less(t, len(m.asked), 45, "message %d", i)
		}
		require.NoError(t, m.Remove(t.Context(), "orders", []string{all[1234], all[0], all[2999]}))
		for _, gone := range []string{all[1234], all[0], all[2999], "", "zzzz"} {
			_, _, err := at(gone)
			require.ErrorIs(t, err, backend.ErrGone, "%q", gone)
		}
	})
}
