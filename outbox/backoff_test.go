package outbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errHeld = errors.New("held")

func held(topic string, rows ...*row) *sending {
	return &sending{topic: topic, rows: rows, failed: rows, err: errHeld}
}

// The delays of a scope grow to 30 seconds and stay there. A success ends them.
func TestDelaysGrow(t *testing.T) {
	var h holds
	now := time.Now()
	r := &row{number: 1, topic: "orders", key: []byte("k")}
	var last time.Duration
	for range 12 {
		last = h.record(held("orders", r), now)
		require.Equal(t, []scope{{topic: "orders", key: "k"}}, h.active(now))
		require.Empty(t, h.active(now.Add(last)))
	}
	require.Greater(t, last, mostDelay/4)
	require.LessOrEqual(t, last, mostDelay)
	h.clear(&sending{topic: "orders", rows: []*row{r}})
	require.Empty(t, h.all)
	require.Less(t, h.record(held("orders", r), now), time.Second)
}

// The number of holds is bounded: beyond it whole topics are held. A hold whose rows are gone
// is forgotten.
func TestHoldsAreBounded(t *testing.T) {
	var h holds
	now := time.Now()
	for i := range 3 * mostHolds {
		r := &row{number: int64(i + 1), topic: "orders"}
		if i%2 == 0 {
			r.key = fmt.Append(nil, i)
		}
		h.record(held("orders", r), now)
	}
	require.Len(t, h.all, mostHolds+1)
	require.Contains(t, h.active(now), scope{topic: "orders"})
	h.record(&sending{topic: "bills", wide: true, err: errHeld}, now)
	require.Contains(t, h.active(now), scope{topic: "bills"})
	require.Empty(t, h.active(now.Add(time.Hour)))
	require.Empty(t, h.all)
	require.Zero(t, h.fine)
}

// A call that fails as a whole holds the topic, and the keys of its rows keep their delays.
func TestATopicIsHeld(t *testing.T) {
	var h holds
	now := time.Now()
	s := held("orders", &row{number: 1, topic: "orders", key: []byte("k")})
	s.wide = true
	h.record(s, now)
	require.Equal(t, []scope{{topic: "orders"}}, h.active(now))
}
