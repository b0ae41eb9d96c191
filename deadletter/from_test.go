package deadletter_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
)

// A counting backend counts the messages that are read.
type counting struct {
	backend.Backend
	read *atomic.Int64
}

func (c counting) Unwrap() backend.Backend { return c.Backend }

func (c counting) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	ms, err := backend.Read(ctx, c.Backend, topic, from, limit)
	c.read.Add(int64(len(ms)))
	return ms, err
}

// A filter reads neither the letters before From nor the ones long after its Place.
func TestFromAndPlaceBoundTheReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		ids := make([]string, 500)
		for i := range ids {
			ids[i] = fmt.Sprint("e-", i)
		}
		s.publish(t, "permanent", ids...)
		settle()
		var places []string
		for l, err := range s.letters.All(t.Context(), deadletter.Filter{}) {
			require.NoError(t, err)
			places = append(places, l.Place)
		}
		require.Len(t, places, 500)
		var read atomic.Int64
		letters, err := deadletter.Open(counting{s.Backend(), &read}, "orders.dlq")
		require.NoError(t, err)
		f := deadletter.Filter{From: backend.StartAfter(places[249]), Place: places[250]}
		s.repair()
		report, err := letters.Redrive(t.Context(), deadletter.Redrive{Filter: f})
		require.NoError(t, err)
		require.Equal(t, deadletter.Report{Redriven: 1}, report)
		require.LessOrEqual(t, read.Load(), int64(101), "the letter, and at most one page")
		n, err := letters.Discard(t.Context(), deadletter.Filter{From: backend.StartAfter(places[250])})
		require.NoError(t, err)
		require.Equal(t, 249, n)
		require.Len(t, s.ids(t, deadletter.Filter{}), 250)
		settle()
	})
}

// Stored is the event of a reader of the dead-letter topic.
func TestStoredIsTheLetterOfAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "billing")
		s.publish(t, "permanent", "e-1")
		settle()
		ms, err := backend.Read(t.Context(), s.Backend(), "orders.dlq", eventbus.StartEarliest, 1)
		require.NoError(t, err)
		for l, err := range s.letters.All(t.Context(), deadletter.Filter{}) {
			require.NoError(t, err)
			require.Equal(t, ms[0], l.Stored())
		}
	})
}
