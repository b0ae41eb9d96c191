package letter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A dead letter always gives its redriven message the same ID. Another dead letter gives
// another ID, even at the same position of a topic that was deleted and made again.
func TestRedriveIDIsTheLetters(t *testing.T) {
	redriven := func(dead backend.Message) string {
		var m backend.Message
		letter.Redrive(&m, &dead)
		require.True(t, m.Once)
		return m.ID
	}
	dead := backend.Message{Topic: "orders.dlq", Position: "1", ID: "a"}
	require.Equal(t, redriven(dead), redriven(dead))
	for field, other := range map[string]backend.Message{
		"topic":    {Topic: "bills.dlq", Position: "1", ID: "a"},
		"position": {Topic: "orders.dlq", Position: "2", ID: "a"},
		"ID":       {Topic: "orders.dlq", Position: "1", ID: "b"},
	} {
		require.NotEqual(t, redriven(dead), redriven(other), field)
	}
}
