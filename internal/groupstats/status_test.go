package groupstats

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func TestStatus(t *testing.T) {
	old := time.Unix(1, 0) // any time: the age counts
	busy := Stats{Depth: 9, Lag: 3, InFlight: 1, Members: 2, Oldest: old, Told: true}
	with := func(change func(*Stats)) *Stats {
		s := busy
		change(&s)
		return &s
	}
	for _, row := range []struct {
		name string
		e    evidence
		want Status
	}{
		{"nothing waits", evidence{stats: &Stats{Members: 1, Told: true}}, OK},
		{"young events", evidence{stats: &busy, age: 59 * time.Second}, OK},
		{"an old event", evidence{stats: &busy, age: time.Minute}, Behind},
		{"very old, but it moves", evidence{stats: &busy, age: time.Hour, idle: 59 * time.Second}, Behind},
		{"very old, and no progress", evidence{stats: &busy, age: time.Hour, idle: time.Minute}, Stuck},
		{"no progress, but not old", evidence{stats: &busy, age: 4 * time.Minute, idle: 4 * time.Minute}, Behind},
		{"all wait for a retry", evidence{stats: with(func(s *Stats) { s.Lag, s.InFlight, s.Delayed = 0, 0, 2 }), age: time.Hour, idle: time.Hour}, Behind},
		{"held or delayed, unknown which", evidence{stats: with(func(s *Stats) { s.InFlight, s.Delayed = backend.Unknown, backend.Unknown }), age: time.Hour, idle: time.Hour}, Stuck},
		{"no members", evidence{stats: with(func(s *Stats) { s.Members = 0 }), age: time.Hour, idle: time.Hour}, NoMembers},
		{"no members, and nothing to do", evidence{stats: &Stats{Told: true}}, NoMembers},
		{"members unknown", evidence{stats: with(func(s *Stats) { s.Members = backend.Unknown })}, OK},
		{"paused", evidence{stats: with(func(s *Stats) { s.Members = 0 }), paused: true, age: time.Hour, idle: time.Hour}, Paused},
		{"losing", evidence{stats: &busy, paused: true, lost: true}, Losing},
		{"not told", evidence{stats: &Untold}, Unknown},
		{"not told, but paused", evidence{stats: &Untold, paused: true}, Paused},
		{"the lag is unknown, and nothing is old", evidence{stats: with(func(s *Stats) { s.Lag, s.Oldest = backend.Unknown, time.Time{} })}, Unknown},
	} {
		row.e.behind, row.e.late = time.Minute, 5*time.Minute
		require.Equal(t, row.want, judge(&row.e), row.name)
	}
	require.Equal(t, Stuck, judge(&evidence{stats: &busy, age: 10 * time.Second, idle: 10 * time.Second, behind: time.Second, late: 10 * time.Second}), "a program that asks for seconds")
	require.Equal(t, Behind, judge(&evidence{stats: &busy, age: time.Hour, idle: 9 * time.Second, behind: time.Second, late: 10 * time.Second}))
}

// The words are in the order of their weight, each has a sentence, and all are in Statuses.
func TestStatuses(t *testing.T) {
	for i, s := range Statuses {
		require.Equal(t, Status(len(Statuses)-1-i), s)
		require.NotEmpty(t, s.Explain())
		if s != Unknown {
			require.NotEqual(t, Unknown.String(), s.String())
			require.NotEqual(t, Unknown.Explain(), s.Explain())
		}
	}
}

func TestLost(t *testing.T) {
	require.False(t, (&Stats{Depth: 3, Lag: 2, InFlight: 1}).lost())
	require.True(t, (&Stats{Depth: 3, Lag: 2, InFlight: 1, Delayed: 1}).lost())
	require.True(t, (&Stats{Depth: 3, Lag: backend.Unknown, InFlight: 4}).lost(), "what is known is enough")
	require.False(t, (&Stats{Depth: backend.Unknown, Lag: 2}).lost())
}

func TestPartitionsAdd(t *testing.T) {
	early, late := time.Unix(10, 0), time.Unix(20, 0)
	s := Stats{Depth: 1, Lag: 1, Unacked: 1, InFlight: backend.Unknown, Members: 1, Oldest: late, Told: true}
	s.add(Stats{Depth: 2, Lag: 3, Unacked: 9, InFlight: 4, Delayed: 5, Members: 1, Oldest: early, Told: true})
	require.Equal(t, Stats{Depth: 3, Lag: 4, Unacked: 10, InFlight: backend.Unknown, Delayed: 5, Members: 1, Oldest: early, Told: true}, s)
	s.add(Stats{Told: true})
	require.Equal(t, early, s.Oldest, "a partition without events has no oldest one")
	s.add(Untold)
	require.False(t, s.Told)
	require.Equal(t, Count(backend.Unknown), s.Lag)
	require.Equal(t, Count(backend.Unknown), s.Members)
}

func TestCount(t *testing.T) {
	require.Equal(t, "unknown", Count(backend.Unknown).String())
	for c, text := range map[Count]string{backend.Unknown: "null", 0: "0", 12: "12"} {
		data, err := json.Marshal(c)
		require.NoError(t, err)
		require.Equal(t, text, string(data))
		var again Count
		require.NoError(t, json.Unmarshal(data, &again))
		require.Equal(t, c, again)
	}
}

func TestHistory(t *testing.T) {
	var tr progress
	now := time.Unix(1_000_000, 0)
	at := func(d time.Duration, lag Count) {
		tr.record(now.Add(d), &Stats{Lag: lag}, false)
	}
	require.Empty(t, tr.history())
	at(0, 5)
	at(2*time.Second, 6)
	require.Equal(t, []int64{6}, tr.history(), "a slot has its last lag")
	at(10*time.Second, 7)
	at(40*time.Second, backend.Unknown)
	at(50*time.Second, 8)
	require.Equal(t, []int64{6, 7, -1, -1, -1, 8}, tr.history(), "nothing is known while nobody looked")
	for i := range 200 {
		at(60*time.Second+time.Duration(i)*Slot, Count(i))
	}
	require.Len(t, tr.history(), slots)
	require.Equal(t, int64(199), tr.history()[slots-1])
	require.Equal(t, int64(199-slots+1), tr.history()[0])
	at(24*time.Hour, 3)
	require.Equal(t, []int64{3}, tr.history(), "after a long break it starts over")
	at(23*time.Hour, 4)
	require.Equal(t, []int64{4}, tr.history(), "a clock that goes back does no harm")
}

func TestProgress(t *testing.T) {
	var tr progress
	now := time.Unix(1_000_000, 0)
	first, second := Stats{Oldest: time.Unix(5, 0)}, Stats{Oldest: time.Unix(6, 0)}
	with := func(s Stats, lag, inFlight Count) *Stats {
		s.Lag, s.InFlight = lag, inFlight
		return &s
	}
	for i, row := range []struct {
		s    *Stats
		want time.Duration // minutes without progress
	}{
		{with(first, 9, 1), 0},
		{with(first, 9, 1), 1},
		{with(second, 9, 1), 0}, // another event is the oldest
		{with(second, 9, 1), 1},
		{with(second, 7, 2), 0}, // fewer events, perhaps of the same moment
		{with(second, 0, 1), 0},
		{with(second, 5, 1), 1}, // events come and go, and one is stuck
		{with(second, 2, 2), 2},
		{with(second, 0, 1), 3},
		{with(second, backend.Unknown, 1), 4},
		{&Stats{}, 0}, // nothing is unsettled
		{&Stats{}, 0},
		{with(second, 1, 0), 0},
	} {
		idle, _ := tr.record(now.Add(time.Duration(i)*time.Minute), row.s, false)
		require.Equal(t, row.want*time.Minute, idle, i)
	}
}

// One round alone may see two counts of different moments.
func TestEventsAreLostIfTwoRoundsMissThem(t *testing.T) {
	var tr progress
	for i, row := range []struct{ short, want bool }{{true, false}, {false, false}, {true, false}, {true, true}, {true, true}, {false, false}} {
		_, lost := tr.record(time.Unix(int64(i), 0), &Stats{}, row.short)
		require.Equal(t, row.want, lost, i)
	}
}
