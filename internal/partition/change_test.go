package partition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// changeTo returns a change of orders to n partitions, which agrees to no loss.
func changeTo(b backend.Backend, n int) *Change {
	return &Change{Backend: b, Topic: "orders", Number: n, By: "ann", Confirm: func(l Loss) error { return fmt.Errorf("would lose %+v", l) }}
}

func put(t *testing.T, b backend.Backend, topic string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, Payload: []byte(text)}}))
	}
}

// The first number of a log decides, until a change has ended. A mark closes the topic, and a change
// whose mark is gone means nothing.
func TestNumberLog(t *testing.T) {
	const mark, other = `{"change":"a","from":16,"to":32,"by":"ann"}`, `{"change":"b","from":16,"to":4,"by":"bob"}`
	for _, row := range []struct {
		name         string
		log          []string
		number, open int
		epochs       int
	}{
		{"nothing", nil, 0, 0, 0},
		{"two programs at the same time", []string{"16", "8"}, 16, 0, 0},
		{"a change", []string{"16", "8", mark}, 16, 1, 0},
		{"a change that has ended", []string{"16", "8", mark, `{"change":"a","ended":true,"epochs":7}`}, 32, 0, 7},
		{"only that change", []string{mark, `{"change":"a","ended":true,"epochs":7}`}, 32, 0, 7},
		{"another program, too late", []string{mark, `{"change":"a","ended":true}`, "16"}, 32, 0, 0},
		{"an end without its mark", []string{"16", `{"change":"a","ended":true,"epochs":7}`}, 16, 0, 0},
		{"two changes", []string{"16", mark, other}, 16, 2, 0},
		{"two changes, and the end of one", []string{"16", mark, other, `{"change":"a","ended":true}`}, 32, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := inmemory.New(inmemory.Options{})
			put(t, b, NumberTopic("orders"), row.log...)
			l, err := readNumber(t.Context(), b, "orders")
			require.NoError(t, err)
			require.Equal(t, []int{row.number, row.open, row.epochs}, []int{l.number, len(l.open), l.epochs})
			require.Len(t, l.all, len(row.log))
		})
	}
	for _, text := range []string{"", "0", "1025", "x", "{}", `{"change":"a","from":0,"to":3}`, `{"change":"a","from":3,"to":1025}`} {
		b := inmemory.New(inmemory.Options{})
		put(t, b, NumberTopic("orders"), text)
		_, err := Number(t.Context(), b, "orders")
		require.ErrorIs(t, err, backend.ErrRefused, text)
		require.ErrorContains(t, err, "orders.partitions is")
	}
}

// A topic gets more partitions and fewer. Programs with the old number learn it, the log of the number
// stays short, and epochs grow over each change, because a fence of a program needs that.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		epoch := 0
		for i, n := range []int{9, 2, 9} {
			before, err := Number(t.Context(), b, "orders")
			require.NoError(t, err)
			o := join(t, b, before, 10*time.Second)
			time.Sleep(5 * time.Second)
			require.Len(t, o.Owned(), before)
			least, most := epochs(o)
			require.Greater(t, least, epoch, "change %d", i)
			epoch = most
			require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
			began := time.Now()
			r, err := changeTo(b, n).Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, Result{Before: before, Now: n, Groups: 1, Deleted: r.Deleted}, r)
			require.GreaterOrEqual(t, time.Since(began), PledgeTime)
			require.Less(t, time.Since(began), 10*time.Second)
			other, ok := errors.AsType[*NumberError](Agree(t.Context(), b, "orders", before))
			require.True(t, ok)
			require.Equal(t, NumberError{Topic: "orders", Stored: n, Stated: before}, *other)
			require.NoError(t, Agree(t.Context(), b, "orders", n))
			l, err := readNumber(t.Context(), b, "orders")
			require.NoError(t, err)
			require.Len(t, l.all, 2)
		}
		o := join(t, b, 9, 10*time.Second)
		time.Sleep(5 * time.Second)
		require.Len(t, o.Owned(), 9, "no token was settled or lost")
		require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
	})
}

func epochs(o *idleOwner) (least, most int) {
	for i, c := range o.Owned() {
		if i == 0 || c.Epoch < least {
			least = c.Epoch
		}
		most = max(most, c.Epoch)
	}
	return least, most
}

// attached makes a group of a partition, whose events nobody settles.
func attached(t *testing.T, b backend.Backend, i int, group string) {
	t.Helper()
	require.NoError(t, backend.DeclareGroup(t.Context(), b, Topic("orders", i), group, backend.StartEarliest))
}

// A change is refused while it would break the order or lose an event, and then leaves all as it was.
func TestChangeIsRefused(t *testing.T) {
	for _, row := range []struct {
		name string
		make func(t *testing.T, b *inmemory.Backend)
		want string
		is   error
	}{
		{"no partitions", func(t *testing.T, b *inmemory.Backend) {
			require.NoError(t, b.DeleteTopic(t.Context(), NumberTopic("orders")))
		}, "orders has no partitions", nil},
		{"a group is behind", func(t *testing.T, b *inmemory.Backend) {
			attached(t, b, 3, "audit")
			put(t, b, Topic("orders", 3), "1", "2")
		}, "audit has not settled 2 events of orders", nil},
		{"a partition out of use has events", func(t *testing.T, b *inmemory.Backend) {
			attached(t, b, 7, "audit")
			put(t, b, Topic("orders", 7), "1")
		}, "audit has not settled 1 events of orders", nil},
		{"a member lives", func(t *testing.T, b *inmemory.Backend) {
			o := join(t, b, 4, 10*time.Second)
			t.Cleanup(func() { require.NoError(t, o.Close(context.WithoutCancel(t.Context()))) })
		}, `orders has members: stop "" of g`, nil},
		{"a member stands still", func(t *testing.T, b *inmemory.Backend) {
			tokens, err := openTokens(t.Context(), b, "orders", "g", 4, time.Hour, func(backend.Notice) {})
			require.NoError(t, err)
			_, err = tokens.receive(t.Context(), 2, time.Hour)
			require.NoError(t, err)
		}, "a member of g owns the partitions 0-1 of orders", nil},
		{"the owners are paused", func(t *testing.T, b *inmemory.Backend) {
			require.NoError(t, backend.DeclareGroup(t.Context(), b, OwnersTopic("orders"), "g", ""))
			require.NoError(t, b.Pause(t.Context(), OwnersTopic("orders"), "g", backend.Pause{By: "ops"}))
		}, "the group g is paused in orders.partitions.owners", nil},
		{"no group has the events", func(t *testing.T, b *inmemory.Backend) { put(t, b, Topic("orders", 1), "1") }, "would lose {Deleted:0 Mixed:1", nil},
		{"events of deleted partitions", func(t *testing.T, b *inmemory.Backend) { put(t, b, Topic("orders", 6), "1") }, "would lose {Deleted:1 Mixed:0", nil},
		{"another command", func(t *testing.T, b *inmemory.Backend) {
			put(t, b, NumberTopic("orders"), `{"change":"b","from":4,"to":8,"by":"bob"}`)
		}, "would lose {Deleted:0 Mixed:0 Other:", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := inmemory.New(inmemory.Options{})
				require.NoError(t, Agree(t.Context(), b, "orders", 4))
				row.make(t, b)
				time.Sleep(2 * time.Second)
				before, err := b.Read(t.Context(), NumberTopic("orders"), "", 9)
				_, err2 := changeTo(b, 5).Run(t.Context())
				require.ErrorContains(t, err2, row.want)
				after, err3 := b.Read(t.Context(), NumberTopic("orders"), "", 9)
				require.Equal(t, err, err3)
				require.Equal(t, before, after)
				require.NoError(t, b.Close())
			})
		})
	}
}

// While a change goes on, a member of the old number does not begin, and one that has begun goes on. After
// the change both fail with the numbers.
func TestMembersLearnOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		early := newHeedful(t, b, 4)
		time.Sleep(3 * time.Second)
		require.Len(t, early.Owned(), 4)
		put(t, b, NumberTopic("orders"), `{"change":"a","from":4,"to":8,"by":"ann"}`)
		require.NoError(t, early.failure())
		late := newHeedful(t, b, 4)
		time.Sleep(10 * time.Second)
		require.NoError(t, early.failure())
		require.NoError(t, late.failure())
		require.Len(t, early.Owned(), 4)
		require.Empty(t, late.Owned())
		put(t, b, NumberTopic("orders"), `{"change":"a","ended":true}`)
		time.Sleep(3 * time.Second)
		for _, o := range []*heedful{early, late} {
			other, ok := errors.AsType[*NumberError](o.failure())
			require.True(t, ok)
			require.Equal(t, NumberError{Topic: "orders", Stored: 8, Stated: 4}, *other)
			require.Empty(t, o.Owned(), "it gives its partitions back")
			require.NoError(t, o.Close(context.WithoutCancel(t.Context())))
		}
	})
}

type heedful struct {
	idleOwner
	failed atomic.Pointer[error]
}

func (o *heedful) Failed(err error) { o.failed.Store(&err) }

func (o *heedful) failure() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func newHeedful(t *testing.T, b backend.Backend, n int) *heedful {
	o := &heedful{}
	c, err := Open(t.Context(), Config{Backend: b, Topic: "orders", Group: "g", Number: n, Lease: 10 * time.Second, Notify: func(backend.Notice) {}, Owner: o, Guard: func(_ string, f func() error) error { return f() }})
	require.NoError(t, err)
	o.Coordinator = c
	c.Start()
	return o
}

// Of two commands at the same time at most one succeeds, and the number is the one of the other.
func TestTwoChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		results := make(chan error, 2)
		for _, n := range []int{8, 9} {
			go func() {
				_, err := changeTo(b, n).Run(t.Context())
				results <- err
			}()
		}
		one, two := <-results, <-results
		require.True(t, (one == nil) != (two == nil), "%v, %v", one, two)
		require.Regexp(t, "another command changes the number at the same time|Other:topic orders has 4", errors.Join(one, two))
		l, err := readNumber(t.Context(), b, "orders")
		require.NoError(t, err)
		require.Contains(t, []int{8, 9}, l.number)
		require.Empty(t, l.open)
	})
}

// A command that was killed leaves a mark. Another one gives it up, if the operator agrees, and the
// first one cannot end any more.
func TestAChangeThatDidNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		put(t, b, NumberTopic("orders"), `{"change":"dead","from":4,"to":8,"by":"bob"}`)
		err := Agree(t.Context(), b, "orders", 4)
		require.ErrorIs(t, err, backend.ErrUnavailable, "Publish tries again")
		require.ErrorContains(t, err, `"bob" is changing them to 8`)
		c := changeTo(b, 6)
		c.Confirm = func(l Loss) error {
			require.Equal(t, "bob", l.Other.By)
			return nil
		}
		_, err = c.Run(t.Context())
		require.NoError(t, err)
		put(t, b, NumberTopic("orders"), `{"change":"dead","ended":true}`)
		require.NoError(t, Agree(t.Context(), b, "orders", 6))
	})
}

// The groups exist in new partitions before the number is stored, and the partitions keep events as
// the others do.
func TestNewPartitionsHaveGroupsAndSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		require.NoError(t, Agree(t.Context(), b, "orders", 1))
		settings := backend.TopicSettings{Keep: time.Hour, MaxMessages: 77}
		_, err := b.Declare(t.Context(), Topic("orders", 0), backend.Declaration{Settings: settings})
		require.NoError(t, err)
		attached(t, b, 0, "audit")
		_, err = changeTo(b, 3).Run(t.Context())
		require.NoError(t, err)
		for i := range 3 {
			has, err := b.Declare(t.Context(), Topic("orders", i), backend.Declaration{})
			require.NoError(t, err)
			require.Equal(t, settings, has)
			groups, err := b.Groups(t.Context(), Topic("orders", i))
			require.NoError(t, err)
			require.Equal(t, []string{"audit"}, groups)
		}
	})
}

// Members settle no token of a partition that is out of use, because a later change may use it again.
func TestTokensOutOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		put(t, b, NumberTopic("orders"), "8")
		require.NoError(t, backend.DeclareGroup(t.Context(), b, OwnersTopic("orders"), "late", backend.StartEarliest)) // so that settled tokens stay
		for _, n := range []int{8, 4, 8} {
			require.NoError(t, b.DeleteTopic(t.Context(), NumberTopic("orders")), "as if a change had not ended")
			one, two := join(t, b, n, 5*time.Second), join(t, b, n, 5*time.Second)
			time.Sleep(30 * time.Second)
			require.Len(t, append(one.Owned(), two.Owned()...), n)
			require.NoError(t, one.Close(context.WithoutCancel(t.Context())))
			require.NoError(t, two.Close(context.WithoutCancel(t.Context())))
			time.Sleep(10 * time.Second)
		}
	})
}

// A mark that the broker stores late counts from then on.
func TestASlowMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBroker{Backend: inmemory.New(inmemory.Options{})}
		require.NoError(t, Agree(t.Context(), b, "orders", 4))
		b.takes = 20 * time.Second
		began := time.Now()
		_, err := changeTo(b, 5).Run(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), b.takes+PledgeTime+b.takes, "the mark, the pledges, and the end")
		b.takes = 40 * time.Second
		_, err = changeTo(b, 6).Run(t.Context())
		require.NoError(t, err)
		b.takes = time.Minute
		_, err = changeTo(b, 7).Run(t.Context())
		require.ErrorIs(t, err, errSlow)
		require.NoError(t, Agree(t.Context(), b, "orders", 6))
	})
}

// A slowBroker takes time to store a message.
type slowBroker struct {
	*inmemory.Backend
	takes time.Duration
}

func (b *slowBroker) Publish(ctx context.Context, ms []*backend.Message) error {
	time.Sleep(b.takes)
	return b.Backend.Publish(ctx, ms)
}
