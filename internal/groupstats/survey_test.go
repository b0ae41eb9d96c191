package groupstats

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/letter"
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

// bury adds n dead letters of a group, of the given size.
func bury(t *testing.T, b *inmemory.Backend, topic, group string, n, size int) {
	for range n {
		m := &backend.Message{Topic: topic, Payload: make([]byte, size), Headers: backend.Headers{{Name: letter.Group, Value: group}}}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
	}
}

func TestSurveyOfEverything(t *testing.T) {
	b := filled(t, "orders", 3, "billing", "shipping")
	bury(t, b, "orders.dlq", "billing", 2, 0)
	add(t, b, "logs", 1)
	s, err := NewSurvey(b)
	require.NoError(t, err)

	topics, err := s.Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []TopicRow{
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
		require.Equal(t, GroupRow{
			Topic: "orders", Group: name, DeadLetters: Count(2 - 2*i),
			Stats: Stats{Depth: 3, Lag: 3, Oldest: groups[0].Oldest, Members: 1, Told: true},
		}, groups[i])
	}

	of, err := s.Groups(t.Context(), "logs", "orders")
	require.NoError(t, err)
	require.Len(t, of, 2)
	_, err = s.Groups(t.Context(), "orders", "nowhere")
	require.ErrorIs(t, err, backend.ErrGone)
}

func TestSurveyOfDeadLetters(t *testing.T) {
	for _, row := range []struct {
		name    string
		n, size int
		want    Count
	}{
		{"none", 0, 0, 0},
		{"some", 7, 0, 7},
		{"many", 5000, 0, 5000},
		{"more bytes than are read", 130, 1 << 20, backend.Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := filled(t, "orders", 0, "billing", "shipping")
			bury(t, b, "orders.dlq", "billing", row.n, row.size)
			s, err := NewSurvey(b)
			require.NoError(t, err)
			groups, err := s.Groups(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, row.want, groups[0].DeadLetters)
			require.Equal(t, min(row.want, 0), groups[1].DeadLetters, "a letter belongs to the group that failed")
		})
	}
}

// All topics share the timeout of the command, so a large topic must not use it up.
func TestSurveyDoesNotReadAllOfALargeTopic(t *testing.T) {
	b := filled(t, "logs", mostCounted)
	s, err := NewSurvey(b)
	require.NoError(t, err)
	for _, want := range []Count{mostCounted, backend.Unknown} {
		topics, err := s.Topics(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, topics[0].Depth)
		add(t, b, "logs", 1)
	}
}

// A damaged backend cannot tell about one of its topics.
type damaged struct{ *inmemory.Backend }

func (d damaged) Groups(ctx context.Context, topic string) ([]string, error) {
	if topic == "bad" {
		return nil, backend.ErrRefused
	}
	return d.Backend.Groups(ctx, topic)
}

// One topic that cannot be read spoils only its own row.
func TestSurveyWithABadTopic(t *testing.T) {
	b := filled(t, "bad", 1, "g")
	add(t, b, "good", 2, "g")
	s, err := NewSurvey(damaged{b})
	require.NoError(t, err)
	topics, err := s.Topics(t.Context())
	require.ErrorIs(t, err, backend.ErrRefused)
	require.Equal(t, []TopicRow{{Topic: "bad", Groups: backend.Unknown, Depth: backend.Unknown}, {Topic: "good", Groups: 1, Depth: 2}}, topics)
	groups, err := s.Groups(t.Context())
	require.ErrorIs(t, err, backend.ErrRefused)
	require.Len(t, groups, 1)
	require.Equal(t, "good", groups[0].Topic)
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
	s, err := NewSurvey(lister{})
	require.NoError(t, err)
	topics, err := s.Topics(t.Context())
	require.NoError(t, err)
	require.Equal(t, []TopicRow{{Topic: "a", Groups: 1, Depth: backend.Unknown}}, topics)
	groups, err := s.Groups(t.Context())
	require.NoError(t, err)
	text, err := json.Marshal(groups)
	require.NoError(t, err)
	require.JSONEq(t, `[{"topic":"a","group":"g","depth":null,"lag":null,"unacked":null,"in_flight":null,"delayed":null,"dead_letters":null,"members":null}]`, string(text))
	var again []GroupRow
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, groups, again)

	_, err = NewSurvey(struct{ backend.Backend }{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
