package demo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A step tells an account one fact about its only group.
type step func(*Account)

func begin(n int, key string) step { return func(a *Account) { a.Begin(0, n, key) } }
func end(n int, key string, o Outcome) step {
	return func(a *Account) { a.End(0, n, key, o) }
}
func bury(n int) step { return func(a *Account) { a.Bury(0, n) } }

// run is a whole run of a handler.
func run(n int, key string, o Outcome) step {
	return func(a *Account) { a.Begin(0, n, key); a.End(0, n, key, o) }
}

func TestAccount(t *testing.T) {
	for _, row := range []struct {
		name      string
		published int
		steps     []step
		want      Row
	}{
		{"all is well", 2, []step{run(1, "a", Done), run(2, "a", Done)}, Row{Handled: 2}},
		{"nothing happens", 2, nil, Row{Lost: 2}},
		{"one is lost", 3, []step{run(1, "a", Done), run(3, "a", Done)}, Row{Handled: 2, Lost: 1}},
		{"a run without an end is lost", 1, []step{begin(1, "a")}, Row{Lost: 1}},
		{"a failure alone is lost", 1, []step{run(1, "a", Again)}, Row{Lost: 1}},
		{"a failure for good without a dead letter is lost", 1, []step{run(1, "a", Over)}, Row{Lost: 1}},
		{"a retry", 1, []step{run(1, "a", Again), run(1, "a", Again), run(1, "a", Done)}, Row{Handled: 1, Retried: 2}},
		{"a dead letter", 2, []step{run(1, "a", Over), bury(1), run(2, "a", Done)}, Row{Handled: 1, DeadLettered: 1}},
		{"a dead letter that is read late", 2, []step{run(1, "a", Over), run(2, "a", Done), bury(1)}, Row{Handled: 1, DeadLettered: 1}},

		{"handled twice", 1, []step{run(1, "a", Done), run(1, "a", Done)}, Row{Handled: 1, Duplicated: 1}},
		{"two at once", 1, []step{begin(1, "a"), begin(1, "a"), end(1, "a", Done), end(1, "a", Done)}, Row{Handled: 1, Duplicated: 1}},
		{"two dead letters", 1, []step{run(1, "a", Over), bury(1), bury(1)}, Row{DeadLettered: 1, Duplicated: 1}},
		{"buried and handled", 1, []step{run(1, "a", Over), bury(1), run(1, "a", Done)}, Row{Handled: 1, Duplicated: 2}},
		{"handled and buried", 1, []step{run(1, "a", Done), bury(1)}, Row{Handled: 1, Duplicated: 1}},

		{"the later one first", 2, []step{run(2, "a", Done), run(1, "a", Done)}, Row{Handled: 2, OutOfOrder: 1}},
		{"other keys may overtake", 2, []step{run(2, "b", Done), run(1, "a", Done)}, Row{Handled: 2}},
		{"no key, no order", 2, []step{run(2, "", Done), run(1, "", Done)}, Row{Handled: 2}},
		{
			"the next did not wait for the retry", 2,
			[]step{run(1, "a", Again), run(2, "a", Done), run(1, "a", Done)},
			Row{Handled: 2, Retried: 1, OutOfOrder: 2},
		},
		{
			"the next began while one was running", 2,
			[]step{begin(1, "a"), begin(2, "a"), end(1, "a", Done), end(2, "a", Done)},
			Row{Handled: 2, OutOfOrder: 1},
		},
		{
			"one of many is misplaced", 5,
			[]step{run(1, "a", Done), run(3, "a", Done), run(4, "a", Done), run(2, "a", Done), run(5, "a", Done)},
			Row{Handled: 5, OutOfOrder: 1},
		},

		{
			"one that was handled is redelivered later", 3,
			[]step{run(1, "a", Done), run(2, "a", Done), begin(1, "a"), run(3, "a", Done), end(1, "a", Done)},
			Row{Handled: 3, Duplicated: 1},
		},
		{
			"one that was put aside is redelivered later", 2,
			[]step{run(1, "a", Over), bury(1), run(2, "a", Done), run(1, "a", Over), bury(1)},
			Row{Handled: 1, DeadLettered: 1, Duplicated: 2},
		},
		{
			"one that is being put aside is redelivered", 2,
			[]step{run(1, "a", Over), run(2, "a", Done), run(1, "a", Over), bury(1)},
			Row{Handled: 1, DeadLettered: 1, Retried: 1},
		},

		{"never published", 1, []step{run(1, "a", Done), run(2, "a", Done), run(0, "", Done), bury(3)}, Row{Handled: 1, Unknown: 3}},
		{"more runs than can be counted", 1, many(40, run(1, "a", Again)), Row{Retried: 39, Lost: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := NewAccount("g")
			a.Publish(row.published)
			for _, s := range row.steps {
				s(a)
			}
			row.want.Group, row.want.Published = "g", row.published
			require.Equal(t, []Row{row.want}, a.Rows())

			r := a.Report("test", time.Second)
			bad := row.want.Lost+row.want.OutOfOrder+row.want.Unknown > 0
			require.Equal(t, bad, r.Err() != nil, "the account fails: %v", r.Err())
		})
	}
}

func many(n int, s step) (steps []step) {
	for range n {
		steps = append(steps, s)
	}
	return steps
}

func TestAccountCountsRuns(t *testing.T) {
	a := NewAccount("g")
	require.Equal(t, 1, a.Publish(2))
	require.Equal(t, 3, a.Publish(1))
	require.Equal(t, 1, a.Begin(0, 3, ""))
	require.Equal(t, 2, a.Begin(0, 3, ""))
}

func TestAccountKeepsGroupsApart(t *testing.T) {
	a := NewAccount("x", "y")
	a.Publish(1)
	a.Begin(1, 1, "a")
	a.End(1, 1, "a", Done)
	require.Equal(t, []Row{{Group: "x", Published: 1, Lost: 1}, {Group: "y", Published: 1, Handled: 1}}, a.Rows())
}

func TestAccountWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAccount("x", "y")
		a.Publish(3)
		waited := make(chan error, 1)
		wait := func(n int) { waited <- a.Wait(t.Context(), n, time.Minute) }

		require.NoError(t, a.Wait(t.Context(), 3, time.Minute), "three are allowed")
		go wait(2)
		for _, n := range []int{2, 3} { // the first is still open
			a.Begin(0, n, "")
			a.End(0, n, "", Done)
			a.Bury(1, n)
		}
		synctest.Wait()
		require.Empty(t, waited)
		a.Bury(0, 1)
		a.Bury(1, 1)
		require.NoError(t, <-waited)
		require.NoError(t, a.Wait(t.Context(), 0, time.Minute), "all is finished")
	})
}

func TestAccountDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAccount("x")
		a.Publish(2)
		start := time.Now()
		go func() {
			time.Sleep(40 * time.Second)
			a.Bury(0, 1)
		}()
		require.Equal(t, ErrStalled, a.Wait(t.Context(), 0, time.Minute))
		require.Equal(t, 100*time.Second, time.Since(start), "a minute after the last that was finished")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Wait(ctx, 0, time.Minute), context.DeadlineExceeded)
	})
}
