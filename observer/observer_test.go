package observer_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
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

// The text of an error in a record has no prefix of the bus.
func TestErrorText(t *testing.T) {
	require.Empty(t, observer.ErrorText(nil))
	require.Equal(t, "charge: eventbus: no", observer.ErrorText(errors.New("charge: eventbus: no")))
	require.Equal(t, "handler ran longer than 1s: no", observer.ErrorText(fmt.Errorf("%w: no", &observer.TimeoutError{After: time.Second})))
	require.Equal(t, "no", observer.ErrorText(&observer.NotRunError{Err: errors.New("no")}))
	var none *observer.NotRunError
	require.Contains(t, observer.ErrorText(none), "*observer.NotRunError, whose Error panics")
}
