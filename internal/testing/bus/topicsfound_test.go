package bus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A topic that appears later is found within two seconds. Its first event is handled, also with
// StartLatest, and no event of before Subscribe is.
func TestTopicFoundLater(t *testing.T) {
	for _, start := range []eventbus.Start{eventbus.StartEarliest, eventbus.StartLatest} {
		withMany(t, nil, func(m *many) {
			m.publish("orders.a", "old")
			s := m.read("orders.>", eventbus.SubscribeOptions{Start: start}, nil)
			m.publish("orders.a", "new")
			for i := range 5 {
				topic := fmt.Sprintf("orders.b.%d", i)
				time.Sleep(time.Duration(i) * 313 * time.Millisecond)
				m.publish(topic, "1", "2")
				require.Equal(t, []string{"1", "2"}, m.after(2 * time.Second)[topic])
			}
			want := []string{"old", "new"}
			if start == eventbus.StartLatest {
				want = want[1:]
			}
			require.Equal(t, want, m.after(0)["orders.a"])
			require.Len(t, s.Topics(), 6)
		})
	}
}

// A topic of a pattern that is deleted leaves, and is not created anew by the subscription. It
// returns when a program creates it again. Other topics do not notice.
func TestDeletedTopicLeaves(t *testing.T) {
	withMany(t, nil, func(m *many) {
		m.publish("orders.a", "1")
		m.publish("orders.b", "1")
		s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
		m.after(time.Second)
		require.NoError(t, m.admin.DeleteTopic(m.Context(), "orders.a"))
		m.publish("orders.b", "2")
		require.Equal(t, []string{"1", "2"}, m.after(3 * time.Second)["orders.b"])
		require.Equal(t, []string{"orders.b"}, s.Topics())
		topics, err := m.admin.Topics(m.Context())
		require.NoError(t, err)
		require.NotContains(t, topics, "orders.a")
		state, err := s.State()
		require.NoError(t, err)
		require.Equal(t, observer.Running, state)
		require.Len(t, m.notices, 1)
		require.Equal(t, "orders.a", m.notices[0].Topic)
		require.Contains(t, m.notices[0].Text, "the topic was deleted and left the subscription orders.*")

		m.publish("orders.a", "3")
		require.Equal(t, []string{"1", "3"}, m.after(2 * time.Second)["orders.a"])
	})
}

// A group that is deleted while its topic stays is made anew after the last position, as in a
// subscription with one topic.
func TestDeletedGroupOfAPattern(t *testing.T) {
	withMany(t, nil, func(m *many) {
		require.NoError(t, backend.DeclareGroup(m.Context(), m.Backend(), "orders.a", "other", backend.StartEarliest)) // the topic keeps its events
		m.publish("orders.a", "1", "2")
		s := m.read("orders.*", eventbus.SubscribeOptions{}, nil)
		m.after(time.Second)
		require.NoError(t, m.admin.DeleteGroup(m.Context(), "orders.a", "g"))
		m.publish("orders.a", "3")
		require.Equal(t, []string{"1", "2", "3"}, m.after(3 * time.Second)["orders.a"])
		require.Equal(t, []string{"orders.a"}, s.Topics())
	})
}
