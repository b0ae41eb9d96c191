package nats

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// The stream says how much is unread, because the consumer learns of stored messages a
// moment later. The stream cannot say if other topics share it or messages between are
// deleted.
func TestUnread(t *testing.T) {
	alone, shared := &location{stream: "bus=t"}, &location{stream: "events", prefix: "t="}
	for _, row := range []struct {
		name      string
		state     jetstream.StreamState
		delivered uint64
		want      uint64
	}{
		{"nothing is stored", jetstream.StreamState{}, 0, 0},
		{"all is unread", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 0, 6},
		{"some is", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 4, 2},
		{"nothing is", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 6, 0},
		{"the first are gone", jetstream.StreamState{Msgs: 2, FirstSeq: 5, LastSeq: 6}, 1, 2},
		{"all is gone", jetstream.StreamState{FirstSeq: 7, LastSeq: 6}, 1, 0},
		{"more was handed out since", jetstream.StreamState{Msgs: 6, FirstSeq: 1, LastSeq: 6}, 9, 0},
		{"there are holes", jetstream.StreamState{Msgs: 5, NumDeleted: 1, FirstSeq: 1, LastSeq: 6}, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, unread(alone, row.state, row.delivered))
			require.Zero(t, unread(shared, row.state, row.delivered))
		})
	}
}
