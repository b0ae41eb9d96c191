package observer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

// every returns an observer whose hooks all call note.
func every(note func(any)) observer.Observer {
	var o observer.Observer
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			note(args[0].Interface())
			return nil
		}))
	}
	return o
}

// fire calls each hook of o once, and returns their number.
func fire(o observer.Observer) (n int) {
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsNil() {
			f.Call([]reflect.Value{reflect.Zero(f.Type().In(0))})
			n++
		}
	}
	return n
}

func hooks() int { return reflect.TypeFor[observer.Observer]().NumField() }

func TestJoinTellsEach(t *testing.T) {
	var a, b int
	j := observer.Join(observer.Observer{}, every(func(any) { a++ }), observer.Observer{}, every(func(any) { b++ }))
	require.Equal(t, hooks(), fire(j))
	require.Equal(t, hooks(), a)
	require.Equal(t, hooks(), b)
	require.True(t, observer.Join(observer.Observer{}).IsZero())
	require.False(t, j.IsZero())
}

// A hook that panics is recovered from and reported, unless it is Failed itself.
func TestSafe(t *testing.T) {
	var told []observer.Failed
	o := every(func(any) { panic("boom") })
	o.Failed = func(f observer.Failed) { told = append(told, f); panic("again") }
	require.Equal(t, hooks(), fire(observer.Safe(o)))
	require.Len(t, told, hooks()+1, "its own call, the panic of that, and the others'")
	p, ok := errors.AsType[*observer.PanicError](told[0].Err)
	require.True(t, ok)
	require.Equal(t, "boom", p.Value)
	require.NotEmpty(t, p.Stack)
}

func TestAsyncTellsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told int
		q := observer.Async(every(func(any) { time.Sleep(time.Second); told++ }), 100)
		start := time.Now()
		require.Equal(t, hooks(), fire(q.Observer()))
		require.Equal(t, start, time.Now(), "telling does not wait")
		require.NoError(t, q.Wait(t.Context()))
		require.Equal(t, hooks(), told)
		require.Zero(t, q.Dropped())
	})
}

// Occurrences beyond the queue's length are dropped, counted and reported to Failed.
func TestAsyncDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed []observer.Failed
		q := observer.Async(observer.Observer{
			Settled: func(observer.Settled) { time.Sleep(time.Second) },
			Failed:  func(f observer.Failed) { failed = append(failed, f) },
		}, 2)
		o := q.Observer()
		for range 5 {
			o.Settled(observer.Settled{})
		}
		require.Equal(t, int64(3), q.Dropped())
		require.NoError(t, q.Wait(t.Context()))
		require.Len(t, failed, 1)
		require.Equal(t, 3, failed[0].Events)
		require.ErrorIs(t, failed[0].Err, observer.ErrDropped)
	})
}

func TestAsyncWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := observer.Async(observer.Observer{Settled: func(observer.Settled) { time.Sleep(time.Hour) }}, 2)
		q.Observer().Settled(observer.Settled{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Wait(ctx), context.DeadlineExceeded)
		require.NoError(t, q.Wait(t.Context()))
	})
}

// A lockedBuffer is written to and read by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// Slog writes the first three of many equal failures at once, and one line at the end with
// the number of the others. It writes all failures of single events.
func TestSlogStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		o := observer.Slog(slog.New(slog.NewTextHandler(&log, nil)))
		about := observer.About{Topic: "orders", Group: "billing"}
		const many = 110
		for i := range many {
			o.Failed(observer.Failed{Scope: observer.Receive, About: about, Err: fmt.Errorf("port %d: reset", i)})
			o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Running, To: observer.Degraded, Err: io.EOF})
			o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Degraded, To: observer.Running})
			time.Sleep(50 * time.Millisecond)
		}
		require.Equal(t, 3+3, strings.Count(log.String(), "\n"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 4+4, strings.Count(log.String(), "\n"), "%s", log.String())
		require.Contains(t, log.String(), fmt.Sprintf(`error="port %d: reset" repeated=%d`, many-1, many-3))
		require.Contains(t, log.String(), fmt.Sprintf(`from=degraded repeated=%d`, 2*many-3), "the last state is the one that is told")

		log.Reset()
		about.ID = "1"
		for range many {
			o.Failed(observer.Failed{Scope: observer.Panic, About: about, Err: io.EOF})
		}
		require.Equal(t, many, strings.Count(log.String(), "\n"))
		about.ID = ""
		o.Failed(observer.Failed{Scope: observer.Receive, About: about, Err: io.EOF})
		require.Equal(t, many+1, strings.Count(log.String(), "\n"), "a storm that is over holds nothing back")
	})
}

// Slog logs the occurrences that an operator should see, and leaves out empty fields.
func TestSlog(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	o := observer.Slog(logger)
	about := observer.About{Topic: "t", Group: "g", ID: "1", Attempt: 3}
	o.DeadLettered(observer.DeadLettered{About: about, Reason: "exhausted", DeadLetter: "t.dlq", Err: errors.New("broken")})
	o.Failed(observer.Failed{Scope: observer.Receive, About: observer.About{Topic: "t"}, Err: errors.New("down")})
	o.Failed(observer.Failed{Scope: observer.Panic, Events: 1, Err: &observer.PanicError{Value: "oh", Stack: []byte("main.go:7")}})
	o.StateChanged(observer.StateChanged{Topic: "t", Group: "g", From: observer.Running, To: observer.Degraded})
	o.StateChanged(observer.StateChanged{Topic: "t", Group: "g", From: observer.Starting, To: observer.Running})
	o.StateChanged(observer.StateChanged{Topic: "t", Group: "g", From: observer.Degraded, To: observer.Running})
	require.Equal(t, `level=ERROR msg="eventbus: event dead-lettered" topic=t group=g id=1 attempt=3 reason=exhausted dead_letter=t.dlq error=broken
level=ERROR msg="eventbus: receive failed" topic=t events=0 error=down
level=ERROR msg="eventbus: panic" events=1 error="eventbus: handler panicked: oh" stack=main.go:7
level=WARN msg="eventbus: subscription degraded" topic=t group=g from=running
level=INFO msg="eventbus: subscription running" topic=t group=g from=starting
level=WARN msg="eventbus: subscription running" topic=t group=g from=degraded
`, out.String())
	require.Equal(t, 8, fire(o), "failures, drops, dead letters, discards, losses, stuck handlers, states, notices")
}

// A hook that ends its goroutine, such as by t.FailNow, ends neither the queue nor Wait.
func TestAsyncOutlivesGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		q := observer.Async(observer.Observer{Settled: func(s observer.Settled) {
			if told++; s.Events == 0 {
				runtime.Goexit()
			}
		}}, 3)
		for range 10 {
			for _, n := range []int{0, 1, 0} {
				q.Observer().Settled(observer.Settled{Events: n})
			}
			require.NoError(t, q.Wait(t.Context()))
		}
		require.Equal(t, 30, told)
		require.Zero(t, q.Dropped())
	})
}

// panicsLate is a slog.Handler that panics at a record with the number of held records.
type panicsLate struct{ slog.Handler }

func (panicsLate) Enabled(context.Context, slog.Level) bool { return true }

func (panicsLate) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "repeated" {
			panic("no room for the number")
		}
		return true
	})
	return nil
}

// A slog.Handler that panics does not end the program, also when a storm of records ends and
// no hook runs.
func TestAPanicAtTheEndOfAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observer.Slog(slog.New(panicsLate{}))
		for range 5 {
			o.Failed(observer.Failed{Scope: observer.Ack, Err: errors.New("broken")})
		}
		time.Sleep(time.Minute)
	})
}
