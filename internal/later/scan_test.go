package later

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A Scan keeps no payloads: neither of entries, nor of events that are due soon.
func TestScanKeepsNoPayloads(t *testing.T) {
	t.Parallel()
	now := time.Now()
	payload := make([]byte, 1<<20)
	event := &backend.Message{Topic: "orders", ID: "e", Payload: payload, Position: "1"}
	Schedule(event, now.Add(time.Second), 0)
	entry, err := EntryRecord(&backend.Message{Topic: "orders", Payload: payload}, "r", Plan{Every: time.Hour}, 0)
	require.NoError(t, err)
	entry.Position = "2"
	s := NewScan("orders", now)
	s.Add(event, now)
	s.Add(entry, now)
	s.End(now)
	require.Len(t, entry.Payload, len(payload), "the record of the caller stays as it is")
	events, all, overdue := s.Pending(10, now.Add(2*time.Second))
	require.Equal(t, []int{1, 1}, []int{all, overdue})
	require.Nil(t, events[0].message)
	require.Empty(t, s.Entries()[0].Event().Payload)
	require.Less(t, s.size, 4096)
}

// A Scan is full with many small records, and with few large ones.
func TestScanIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	many, large := NewScan("orders", now), NewScan("orders", now)
	for i := 0; !many.Full(); i++ {
		require.Less(t, i, mostScanned)
		m := &backend.Message{Topic: "orders", ID: time.Duration(i).String(), Position: time.Duration(i + 1<<40).String()}
		Schedule(m, now.Add(time.Hour), 0)
		many.Add(m, now)
	}
	for i := 0; !large.Full(); i++ {
		require.Less(t, i, 40)
		m, err := EntryRecord(&backend.Message{Topic: "orders", Headers: backend.Headers{{Name: "h", Value: string(make([]byte, 1<<20))}}}, time.Duration(i).String(), Plan{Every: time.Hour}, 0)
		require.NoError(t, err)
		m.Position = time.Duration(i + 1<<40).String()
		large.Add(m, now)
	}
	require.False(t, many.Old(now.Add(time.Second)))
	require.True(t, many.Old(now.Add(2*time.Minute)))
}
