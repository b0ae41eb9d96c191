package survey

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

func filled(t *testing.T, topic string, n int, groups ...string) *inmemory.Backend {
	b := inmemory.New(inmemory.Options{})
	add(t, b, topic, n, groups...)
	return b
}

func add(t *testing.T, b *inmemory.Backend, topic string, n int, groups ...string) {
	for range n {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic}}))
	}
	for _, g := range groups {
		_, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: g, Lease: 1})
		require.NoError(t, err)
	}
}

func TestSurveyOfEverything(t *testing.T) {
	b := filled(t, "orders", 3, "billing", "shipping")
	add(t, b, "orders.dlq", 2)
	add(t, b, "logs", 1)
	s, err := New(b)
	require.NoError(t, err)

	topics, err := s.Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Topic{
		{Topic: "logs", Depth: 1},
		{Topic: "orders", Groups: 2, Depth: 3},
		{Topic: "orders.dlq", Depth: 2},
	}, topics)

	groups, err := s.Groups(t.Context())
	require.NoError(t, err)
	require.Len(t, groups, 2)
	for i, name := range []string{"billing", "shipping"} {
		require.False(t, groups[i].Oldest.IsZero())
		groups[i].Oldest = groups[0].Oldest
		require.Equal(t, Group{
			Topic: "orders", Group: name, Depth: 3, Lag: 3, Oldest: groups[0].Oldest, DeadLetters: 2, Members: 1,
		}, groups[i])
	}

	of, err := s.Groups(t.Context(), "logs", "orders")
	require.NoError(t, err)
	require.Len(t, of, 2)
	_, err = s.Groups(t.Context(), "orders", "nowhere")
	require.ErrorIs(t, err, backend.ErrGone)
}

func TestDeadLetters(t *testing.T) {
	for _, row := range []struct {
		name   string
		n      int
		groups []string
		want   Count
	}{
		{"none", 0, nil, 0},
		{"few", 7, nil, 7},
		{"as many as are counted", maxCounted, nil, maxCounted},
		{"more than are counted", maxCounted + 1, nil, backend.Unknown},
		{"many, and a group that knows", maxCounted + 1, []string{"g"}, maxCounted + 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := filled(t, "orders", 0, "billing")
			add(t, b, "orders.dlq", row.n, row.groups...)
			s, err := New(b)
			require.NoError(t, err)
			groups, err := s.Groups(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, row.want, groups[0].DeadLetters)
		})
	}
}

// All topics share the timeout of the command, so a topic with large letters must not use it
// up.
func TestLargeDeadLettersAreNotAllRead(t *testing.T) {
	b := filled(t, "orders", 0, "billing")
	s, err := New(b)
	require.NoError(t, err)
	for _, want := range []Count{12, backend.Unknown} {
		for range 12 {
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders.dlq", Payload: make([]byte, 1<<20)}}))
		}
		groups, err := s.Groups(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, want, groups[0].DeadLetters)
	}
}

// A lister can only list.
type lister struct{ backend.Backend }

func (lister) Topics(context.Context) ([]string, error)          { return []string{"a", "gone"}, nil }
func (lister) DeleteTopic(context.Context, string) error         { return errors.ErrUnsupported }
func (lister) DeleteGroup(context.Context, string, string) error { return errors.ErrUnsupported }
func (lister) ResetGroup(context.Context, string, string, backend.Start) error {
	return errors.ErrUnsupported
}

func (lister) Groups(_ context.Context, topic string) ([]string, error) {
	if topic == "gone" {
		return nil, backend.ErrGone
	}
	return []string{"g"}, nil
}

func TestSurveyOfABackendThatKnowsLittle(t *testing.T) {
	s, err := New(lister{})
	require.NoError(t, err)
	topics, err := s.Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Topic{{Topic: "a", Groups: 1, Depth: backend.Unknown}}, topics)
	groups, err := s.Groups(t.Context())
	require.NoError(t, err)
	text, err := json.Marshal(groups)
	require.NoError(t, err)
	require.JSONEq(t, `[{"topic":"a","group":"g","depth":null,"lag":null,"in_flight":null,"delayed":null,"dead_letters":null,"members":null}]`, string(text))
	var again []Group
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, groups, again)

	_, err = New(struct{ backend.Backend }{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
