package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

func TestGroupPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		p := v.page(v.page("").link("audit"))
		require.Contains(t, p.text, "by ann, until somebody resumes it: the bank is closed")
		require.Contains(t, p.text, "An operator has paused the group")
		require.Len(t, v.page(v.page("").link("g")).cells("Partitions"), 3)
		code, body := v.answer("group?topic=orders&name=nobody")
		require.Equal(t, http.StatusNotFound, code)
		require.Contains(t, body, "There was no such group")
	})
}

// The group page names the owners of partitions, and learns who lives while somebody looks.
func TestOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		o := eventbus.Options{Topics: map[string]eventbus.TopicOptions{"parts": {Partitions: 4}}}
		one, two := openBus(t, m, o), openBus(t, m, o)
		none := func(context.Context, *eventbus.Delivery) error { return nil }
		for _, bus := range []*eventbus.Bus{one, two} {
			_, err := bus.Subscribe(t.Context(), "parts", eventbus.SubscribeOptions{Group: "g"}, none)
			require.NoError(t, err)
		}
		_, err := one.Subscribe(t.Context(), "parts", eventbus.SubscribeOptions{Group: "other"}, none)
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		v := visit(t, m, console.Options{})
		states := func() (all []string) {
			for _, row := range v.page("group?topic=parts&name=g").cells("Members and their partitions") {
				all = append(all, row["State"]+" "+row["Owns"])
			}
			time.Sleep(3 * time.Second)
			return all
		}
		require.Equal(t, []string{"not known yet 2", "not known yet 2"}, states())
		require.Equal(t, []string{"alive 2", "alive 2"}, states())
		rows := v.page("group?topic=parts&name=g").cells("Members and their partitions")
		require.NotEmpty(t, rows[0]["Member"])
		owned := strings.Split(rows[0]["Partitions"]+","+rows[1]["Partitions"], ",")
		require.NotEmpty(t, owned)
		end(t, two)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"alive 4"}, states())
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{{Topic: "parts.partitions.members", Payload: []byte(`{"member":"x","name":"frozen@host","group":"g","owned":"9,11-13"}`)}}))
		time.Sleep(time.Second)
		require.Contains(t, states(), "not known yet 4")
		end(t, one)
		time.Sleep(3 * time.Second)
		require.Contains(t, states(), "free 4")
	})
}
