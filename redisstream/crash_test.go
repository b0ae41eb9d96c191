package redisstream_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A history has the results that publishers were told, by id.
type history struct {
	mu                   sync.Mutex
	stored, not, unknown map[string]bool
	positions            map[string]string
}

func newHistory() *history {
	return &history{stored: map[string]bool{}, not: map[string]bool{}, unknown: map[string]bool{}, positions: map[string]string{}}
}

func (h *history) tell(ms []*backend.Message, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range ms {
		switch err := backend.ErrorAt(err, i); {
		case err == nil:
			h.stored[m.ID], h.positions[m.ID] = true, m.Position
		case backend.NotStored(err):
			h.not[m.ID] = true
		default:
			h.unknown[m.ID] = true
		}
	}
}

// require compares the history with the topic. A message reported as stored is there once,
// at its position. A message reported as not stored is not there. All others are there at
// most once.
func (h *history) require(t *testing.T, all []backend.Message) {
	t.Helper()
	copies := map[string]int{}
	for _, m := range all {
		copies[m.ID]++
		if h.stored[m.ID] {
			require.Equal(t, h.positions[m.ID], m.Position, m.ID)
		}
	}
	for id := range h.stored {
		require.Equal(t, 1, copies[id], "%s was said to be stored", id)
	}
	for id := range h.not {
		require.Zero(t, copies[id], "%s was said not to be stored", id)
	}
	for id := range h.unknown {
		require.LessOrEqual(t, copies[id], 1, "%s", id)
	}
}

// Every result that a publisher gets while the server is killed is true.
func TestPublishersAreToldTheTruthOverKills(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	h := newHistory()
	end := make(chan struct{})
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				ms := batch(fmt.Sprintf("%d-%d", p, n), 50)
				if n%2 == 0 {
					ms = append(ms[:25], once(ms[25:])...)
				}
				if n%4 == 3 {
					ms = ms[:1]
				}
				err := b.Publish(within(t, 5*time.Second), ms)
				h.tell(ms, err)
				if err != nil {
					pause(5 * time.Millisecond)
				}
			}
		})
	}
	for range 3 {
		pause(250 * time.Millisecond)
		server.Kill()
		pause(100 * time.Millisecond)
		server.Run()
	}
	pause(250 * time.Millisecond)
	close(end)
	publishers.Wait()
	// After a refusal the client tries the server again only a second later.
	require.Eventually(t, func() bool {
		_, err := b.Read(within(t, 5*time.Second), topic, "", 1)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	h.require(t, stored(t, b))
	t.Logf("stored %d, certainly not %d, unknown %d", len(h.stored), len(h.not), len(h.unknown))
	require.NotEmpty(t, h.stored)
	require.NotEmpty(t, h.not)
}
