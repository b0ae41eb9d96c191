package lanes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/lanes"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestOneOfAKeyRunsAtATime(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "a1")(l.Enter("a", "1", "a1"))
	waits(t)(l.Enter("a", "2", "a2"))
	runs(t, "b1")(l.Enter("b", "1", "b1"))
	runs(t, "a2")(l.Leave("a"))
	waits(t)(l.Leave("a"))
	runs(t, "a3")(l.Enter("a", "3", "a3"))
}

func TestQueueIsInOrderOfPosition(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	waits(t)(l.Enter("a", "4", "4"))
	waits(t)(l.Enter("a", "2", "2"))
	waits(t)(l.Enter("a", "3", "3"))
	for _, want := range []string{"2", "3", "4"} {
		runs(t, want)(l.Leave("a"))
	}
}

func TestNothingPassesWhatIsAway(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	waits(t)(l.Enter("a", "2", "2"))
	l.Away("a", "1", noon, false)
	waits(t)(l.Leave("a"))
	waits(t)(l.Enter("a", "3", "3"))
	require.Equal(t, 1, l.AwayCount())
	runs(t, "1")(l.Enter("a", "1", "1"))
	require.Zero(t, l.AwayCount())
	runs(t, "2")(l.Leave("a"))
	runs(t, "3")(l.Leave("a"))
}

func TestReturned(t *testing.T) {
	var l lanes.Lanes[string]
	for _, key := range []string{"a", "b", "c"} {
		runs(t, key+"1")(l.Enter(key, key+"1", key+"1"))
		l.Away(key, key+"1", noon, false)
		waits(t)(l.Leave(key))
		waits(t)(l.Enter(key, key+"2", key+"2"))
	}
	require.Empty(t, l.Returned(map[string]bool{"a2": true}))
	require.ElementsMatch(t, []string{"a2", "c2"}, l.Returned(map[string]bool{"a1": true, "c1": true}))
	require.Equal(t, 1, l.AwayCount())
}

func TestWhatIsBeforeTheAbsentRuns(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "5")(l.Enter("a", "5", "5"))
	l.Away("a", "5", noon, false)
	waits(t)(l.Leave("a"))
	runs(t, "3")(l.Enter("a", "3", "3"))
	waits(t)(l.Leave("a"))
	runs(t, "5")(l.Enter("a", "5", "5"))
}

func TestAwaited(t *testing.T) {
	var l lanes.Lanes[string]
	require.Zero(t, l.Awaited("a", "1"))
	runs(t, "1")(l.Enter("a", "1", "1"))
	l.Away("a", "1", noon, false)
	require.Equal(t, noon, l.Awaited("a", "1"))
	require.Zero(t, l.Awaited("a", "2"))
	require.Zero(t, l.Awaited("b", "1"))
}

func TestGiveUpBelow(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "5")(l.Enter("a", "5", "5"))
	l.Away("a", "5", noon, false)
	waits(t)(l.Leave("a"))
	waits(t)(l.Enter("a", "6", "6"))
	require.Empty(t, l.GiveUp(noon, "5"))
	require.Equal(t, []string{"6"}, l.GiveUp(noon, "51"))
}

func TestCrowded(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	_, crowded := l.Crowded("a", "2", 0)
	require.False(t, crowded, "nothing is away")
	l.Away("a", "1", noon, false)
	waits(t)(l.Leave("a"))
	waits(t)(l.Enter("a", "2", "2"))
	_, crowded = l.Crowded("a", "3", 2)
	require.False(t, crowded, "one waits, two may")
	due, crowded := l.Crowded("a", "3", 1)
	require.True(t, crowded)
	require.Equal(t, noon, due)
	_, crowded = l.Crowded("a", "1", 1)
	require.False(t, crowded, "what is away itself always enters")
}

func TestGiveUpLetsTheOthersRun(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	l.Away("a", "1", noon, false)
	waits(t)(l.Leave("a"))
	waits(t)(l.Enter("a", "2", "2"))
	require.Empty(t, l.GiveUp(noon.Add(-time.Nanosecond), ""))
	require.Equal(t, []string{"2"}, l.GiveUp(noon, ""))
	require.Zero(t, l.AwayCount())
}

func TestRemove(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	waits(t)(l.Enter("a", "2", "2"))
	waits(t)(l.Enter("a", "3", "3"))
	waits(t)(l.Remove("a", "2"))
	runs(t, "3")(l.Leave("a"))
}

// TestAnyLifeKeepsOrder lets items run, fail, go away and come back at random:
// first runs of a key are in order, and everything runs in the end.
func TestAnyLifeKeepsOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l lanes.Lanes[int]
		var running, away []int
		const n = 60
		done := map[int]bool{}
		var finished []int
		position := func(i int) string { return fmt.Sprintf("%03d", i) }
		add := func(i int, ok bool) {
			if ok {
				running = append(running, i)
			}
		}
		for next := 0; len(done) < n; {
			switch k := r.IntN(3); {
			case k == 0 && next < n:
				add(l.Enter("k", position(next), next))
				next++
			case k == 1 && len(running) > 0:
				require.Len(t, running, 1, "seed %d", seed)
				i := running[0]
				running = nil
				if r.IntN(3) == 0 {
					l.Away("k", position(i), noon, false)
					away = append(away, i)
				} else {
					done[i] = true
					finished = append(finished, i)
				}
				add(l.Leave("k"))
			case k == 2 && len(away) > 0:
				j := r.IntN(len(away))
				i := away[j]
				away = slices.Delete(away, j, j+1)
				add(l.Enter("k", position(i), i))
			}
		}
		require.True(t, slices.IsSorted(finished), "seed %d: %v", seed, finished)
	}
}

func runs(t *testing.T, want string) func(string, bool) {
	t.Helper()
	return func(got string, ok bool) {
		t.Helper()
		require.True(t, ok, "%s should run", want)
		require.Equal(t, want, got)
	}
}

func waits(t *testing.T) func(string, bool) {
	t.Helper()
	return func(got string, ok bool) {
		t.Helper()
		require.False(t, ok, "%s runs too early", got)
	}
}

// What is leaving is not given up before it has left, and is due from then on.
func TestLeavingIsNotGivenUp(t *testing.T) {
	var l lanes.Lanes[string]
	_, _ = l.Enter("k", "1", "one")
	l.Away("k", "1", noon, true)
	_, ok := l.Leave("k")
	require.False(t, ok)
	_, ok = l.Enter("k", "2", "two")
	require.False(t, ok)
	require.Empty(t, l.GiveUp(noon.Add(time.Hour), ""))
	l.Left("k", "1", noon.Add(time.Minute))
	l.Left("k", "1", noon.Add(time.Hour)) // it has left already
	l.Left("other", "1", noon)
	require.Empty(t, l.GiveUp(noon, ""))
	require.Equal(t, []string{"two"}, l.GiveUp(noon.Add(time.Minute), ""))
	require.Zero(t, l.AwayCount())
}

// Forget gives up everything.
func TestForget(t *testing.T) {
	var l lanes.Lanes[string]
	l.Away("k", "1", noon, true)
	l.Away("k", "2", noon, false)
	_, _ = l.Enter("k", "3", "three")
	require.Equal(t, []string{"three"}, l.Forget())
	require.Zero(t, l.AwayCount())
}

// A message may be there twice: where a broker has forgotten that it handed it out,
// it comes again before the first is found to be lost. The other then still runs.
func TestRemoveLeavesTheOtherOfAPosition(t *testing.T) {
	var l lanes.Lanes[string]
	runs(t, "1")(l.Enter("a", "1", "1"))
	waits(t)(l.Enter("a", "2", "lost"))
	waits(t)(l.Enter("a", "2", "again"))
	waits(t)(l.Remove("a", "lost"))
	runs(t, "again")(l.Leave("a"))
	waits(t)(l.Leave("a"))
}
