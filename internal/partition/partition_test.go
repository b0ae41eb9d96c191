package partition

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// The vectors of docs/partitions.md, for programs in other languages.
func TestOf(t *testing.T) {
	for _, v := range []struct {
		key              string
		of10, of16, of1k int
	}{
		{"a", 0, 12, 300},
		{"foobar", 0, 8, 360},
		{"customer-42", 6, 14, 446},
		{"Zürich", 4, 0, 800},
	} {
		require.Equal(t, v.of10, Of(v.key, 10), v.key)
		require.Equal(t, v.of16, Of(v.key, 16), v.key)
		require.Equal(t, v.of1k, Of(v.key, 1024), v.key)
	}
}

func TestReserved(t *testing.T) {
	for _, name := range []string{Topic("orders", 3), NumberTopic("orders"), OwnersTopic("a.b"), MembersTopic("orders"), "orders.partition-3.dlq"} {
		require.True(t, Reserved(name), name)
		require.NoError(t, backend.CheckName(name))
	}
	for _, name := range []string{"partitions", "partition-3", "partitions.x", "orders.partition-", "orders.partition-x", "orders.partition", "orders.my-partitions"} {
		require.False(t, Reserved(name), name)
	}
}

// The first number decides, and a program with another one learns both.
func TestAgree(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	n, err := Number(t.Context(), b, "orders")
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, Agree(t.Context(), b, "orders", 16))
	require.NoError(t, Agree(t.Context(), b, "orders", 16))
	err = Agree(t.Context(), b, "orders", 8)
	number, ok := errors.AsType[*NumberError](err)
	require.True(t, ok)
	require.Equal(t, NumberError{Topic: "orders", Stored: 16, Stated: 8}, *number)
	require.ErrorContains(t, err, "has 16 partitions, and this program states 8")
	ms, err := b.Read(t.Context(), NumberTopic("orders"), backend.StartEarliest, 9)
	require.NoError(t, err)
	require.Len(t, ms, 1)
}

// An owner gets and extends leases of events only while these surely end before the lease of its
// token. A Claim knows it by its own clock, as soon as a frozen process goes on.
func TestClaimEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		c := NewClaim(3, 1, lease, time.Now())
		end := time.Now().Add(lease) // the lease of the token ends not before
		for range 3 {
			require.True(t, c.Leases())
			require.True(t, c.Settles())
			require.False(t, c.Until().Add(late+EventLease(lease)).After(end), "a lease that a Receive gets at the last moment ends before the lease of the token")
			time.Sleep(time.Until(c.Until()) - time.Nanosecond)
			require.True(t, c.Leases())
			end = time.Now().Add(lease)
			c.extended(time.Now())
		}
		time.Sleep(time.Until(c.Until()))
		require.False(t, c.Leases())
		require.True(t, c.Settles())
		time.Sleep(time.Until(end.Add(-drift(lease))))
		require.False(t, c.Settles())
	})
}

// A member whose notes come no more is dead after three seconds, but not while nobody can read
// notes. The note of a dead member is removed later.
func TestCensus(t *testing.T) {
	now := time.Unix(0, 0)
	var c census
	beat := func(n int) note { return note{Member: "a", Group: "g", position: string(rune('0' + n))} }
	old := note{Member: "b", Group: "g", position: "b"}
	look := func(after time.Duration, notes ...note) []string {
		now = now.Add(after)
		return c.look(now, notes)
	}
	look(0, old, beat(0), note{Member: "x", Group: "other", position: "x"})
	require.Equal(t, 1, c.members("g", "a"))
	for i := range 3 {
		require.Empty(t, look(time.Second, old, beat(i+1)))
		require.Equal(t, 1, c.members("g", "a"), "after %d s", i+1)
	}
	look(time.Second, old, beat(5))
	require.Zero(t, c.members("g", "a"), "b is dead")
	require.Equal(t, 1, c.members("g", "b"), "a is not")
	look(time.Hour, old, beat(5))
	require.Equal(t, 1, c.members("g", "b"), "an outage of an hour ends no member")
	for range 5 {
		look(time.Second, old, beat(6))
	}
	require.Equal(t, []string{"b"}, look(2*time.Second, old, beat(6)), "the note of a dead member")
	require.Equal(t, []string{"7"}, look(time.Second, beat(7), beat(8)), "a note before the last one")
	require.Zero(t, c.members("g", "a"), "b has no note any more")
}

func TestQuota(t *testing.T) {
	for n := range 40 {
		for members := range 50 {
			q := Quota(n, members)
			require.GreaterOrEqual(t, q*max(members, 1), n)
			require.Less(t, (q-1)*max(members, 1), max(n, 1))
		}
	}
}

// The partitions that came last are given back.
func TestSurplus(t *testing.T) {
	now := time.Now()
	var claims []*Claim
	for i := range 5 {
		claims = append(claims, NewClaim(i, 1, time.Minute, now.Add(-time.Duration(i)*time.Second)))
	}
	slices.Reverse(claims)
	require.Empty(t, surplus(claims, 5))
	var given []int
	for _, c := range surplus(claims, 3) {
		given = append(given, c.Partition)
	}
	require.Equal(t, []int{1, 0}, given)
}

// An idleOwner has no events.
type idleOwner struct {
	*Coordinator
	moves atomic.Int64 // partitions that were gained
}

func (o *idleOwner) Gained(*Claim)      { o.moves.Add(1) }
func (o *idleOwner) Shed(c *Claim)      { go o.GiveBack(c, true) }
func (o *idleOwner) Lost(*Claim, error) {}
func (o *idleOwner) Troubled(err error) {}
func (o *idleOwner) Failed(error)       {}

func join(t *testing.T, b backend.Backend, n int, lease time.Duration) *idleOwner {
	o := &idleOwner{}
	c, err := Open(t.Context(), Config{Backend: b, Topic: "orders", Group: "g", Number: n, Lease: lease, Notify: func(backend.Notice) {}, Owner: o, Guard: func(_ string, f func() error) error { return f() }})
	require.NoError(t, err)
	o.Coordinator = c
	c.Start()
	return o
}

func owned(os ...*idleOwner) (counts []int, total int) {
	for _, o := range os {
		counts = append(counts, len(o.Owned()))
		total += len(o.Owned())
	}
	return counts, total
}

// Ten members that come at the same time have their shares within five seconds, and so have five
// after five others have left. A partition moves at once, and no partition moves without need.
func TestStorms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		var os []*idleOwner
		for range 10 {
			os = append(os, join(t, b, 64, 30*time.Second))
		}
		time.Sleep(5 * time.Second)
		counts, total := owned(os...)
		require.Equal(t, 64, total, counts)
		require.LessOrEqual(t, slices.Max(counts), 7)
		stay := os[5:]
		_, had := owned(stay...)
		moves := int64(0)
		for _, o := range stay {
			moves -= o.moves.Load()
		}
		for _, o := range os[:5] {
			require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
		}
		time.Sleep(5 * time.Second)
		counts, total = owned(stay...)
		require.Equal(t, 64, total, counts)
		require.LessOrEqual(t, slices.Max(counts), 13)
		for _, o := range stay {
			moves += o.moves.Load()
		}
		require.Equal(t, int64(64-had), moves, "only the partitions of the members that left have moved")
		for _, o := range stay {
			require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
		}
	})
}

// A duplicate of a token is acknowledged and counts for nothing. A topic that was deleted is made
// anew.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		twice := []*backend.Message{{Topic: OwnersTopic("orders"), ID: "partition-1"}, {Topic: OwnersTopic("orders"), ID: "partition-1"}, {Topic: OwnersTopic("orders"), ID: "partition-77"}}
		require.NoError(t, b.Publish(t.Context(), twice))
		o := join(t, b, 4, 10*time.Second)
		time.Sleep(2 * time.Second)
		claims := o.Owned()
		require.Len(t, claims, 4)
		require.Equal(t, twice[0].Position, claims[1].token.Position)
		require.NoError(t, b.DeleteTopic(t.Context(), OwnersTopic("orders")))
		time.Sleep(12 * time.Second)
		require.Len(t, o.Owned(), 4)
		require.NotSame(t, claims[1], o.Owned()[1])
		require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
	})
}

// Ranges are short, and survive the way through a note. A note of another program harms nobody.
func TestRanges(t *testing.T) {
	for text, numbers := range map[string][]int{
		"": nil, "0": {0}, "0-3,7": {0, 1, 2, 3, 7}, "1,3,5-6": {1, 3, 5, 6}, "1022-1023": {1022, 1023},
	} {
		require.Equal(t, text, Ranges(numbers))
		require.Equal(t, numbers, parseRanges(text))
	}
	for _, text := range []string{"x", "-1", "1024", "0-99999999999", "5-3", "--", ","} {
		require.Empty(t, parseRanges(text), text)
	}
	require.Len(t, parseRanges("0-1023,0-1023,5"), Most)
}

func TestWhole(t *testing.T) {
	for _, name := range []string{Topic("a.b", 3), NumberTopic("a.b"), OwnersTopic("a.b"), MembersTopic("a.b")} {
		require.Equal(t, "a.b", Whole(name), name)
	}
	for _, name := range []string{"a.b", "a.partition-", "a.partition-x", "a.partition-03", "partition-3", "a.partition-3.dlq", "a.partition--3"} {
		require.Empty(t, Whole(name), name)
	}
}

// Members tells the living from a member that stands still, and knows which partitions each owns.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		ms, err := Members(t.Context(), b, "orders")
		require.NoError(t, err)
		require.Empty(t, ms)
		one, two := join(t, b, 5, 10*time.Second), join(t, b, 5, 10*time.Second)
		time.Sleep(5 * time.Second)
		still := roster{backend: b, topic: MembersTopic("orders"), group: "a", id: "still", name: "frozen@host/1"}
		require.NoError(t, still.write(t.Context(), []int{7}, false))
		ms, err = Members(t.Context(), b, "orders")
		require.NoError(t, err)
		require.Len(t, ms, 3)
		require.Equal(t, Member{ID: "still", Name: "frozen@host/1", Group: "a", Owned: []int{7}, Quiet: deadAfter, position: ms[0].position}, ms[0])
		var owned []int
		for _, m := range ms[1:] {
			require.True(t, m.Lives)
			require.Equal(t, "g", m.Group)
			owned = append(owned, m.Owned...)
		}
		slices.Sort(owned)
		require.Equal(t, []int{0, 1, 2, 3, 4}, owned)
		require.NoError(t, one.Close(context.WithoutCancel(t.Context())))
		began := time.Now()
		ms, err = Members(t.Context(), b, "orders")
		require.NoError(t, err)
		require.Len(t, ms, 2)
		require.Equal(t, deadAfter, time.Since(began).Round(time.Second), "one stands still")
		require.NoError(t, two.Close(context.WithoutCancel(t.Context())))
	})
}

// A Roll learns with each look which members live. A member that stands still is silent after three seconds.
func TestRoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		still := roster{backend: b, topic: MembersTopic("orders"), group: "a", id: "still", name: "frozen@host/1"}
		var r Roll
		look := func() (lives, silent bool) {
			ms, err := r.Look(t.Context(), b, "orders")
			require.NoError(t, err)
			require.Len(t, ms, 1)
			return ms[0].Lives, ms[0].Silent()
		}
		require.NoError(t, still.write(t.Context(), []int{7}, false))
		for i, want := range [][2]bool{{false, false}, {false, false}, {true, false}, {true, false}, {true, false}, {false, true}, {true, false}} {
			if i == 2 || i == 6 {
				require.NoError(t, still.write(t.Context(), []int{7}, false))
			}
			lives, silent := look()
			require.Equal(t, want, [2]bool{lives, silent}, "look %d", i)
			time.Sleep(deadAfter / 3)
		}
	})
}
