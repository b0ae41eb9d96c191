package observer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A lineLog is a slog.Handler that keeps each record as a line of text. The time is the
// offset from the start.
type lineLog struct {
	slog.Handler

	mu    *sync.Mutex
	lines *[]string
}

func newLineLog() *lineLog {
	l := &lineLog{mu: &sync.Mutex{}, lines: &[]string{}}
	start := time.Now()
	l.Handler = slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindTime {
			return slog.String(a.Key, fmt.Sprint("+", a.Value.Time().Sub(start)))
		}
		return a
	}})
	return l
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.lines = append(*l.lines, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// taken returns the lines since the last call.
func (l *lineLog) taken() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := *l.lines
	*l.lines = nil
	return lines
}

var billing = observer.About{Topic: "orders", Group: "billing"}

// Slog logs the occurrences that an operator should see, and leaves out empty fields.
func TestSlog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		about := observer.About{Topic: "t", Group: "g", ID: "1", Type: "order.placed", Attempt: 1}
		o.Retried(observer.Retried{
			About: about, Outcome: observer.Retry, MaxAttempts: 12, After: time.Second, Err: errors.New("no"), Class: "bank",
		})
		about.Attempt = 3
		o.DeadLettered(observer.DeadLettered{About: about, Reason: "exhausted", DeadLetter: "t.dlq", Err: errors.New("broken")})
		o.Failed(observer.Failed{Scope: observer.Receive, About: observer.About{Topic: "t"}, Err: errors.New("down")})
		o.Failed(observer.Failed{Scope: observer.Panic, Events: 1, Err: &observer.PanicError{Value: "oh", Stack: []byte("main.go:7")}})
		o.Failed(observer.Failed{Scope: observer.Extend, Events: 1, Err: fmt.Errorf("driver: %w", &observer.PanicError{Value: "oh", Stack: []byte("main.go:7")})})
		o.StateChanged(observer.StateChanged{Topic: "t", Group: "g", From: observer.Starting, To: observer.Running})
		require.Equal(t, []string{
			`time=+0s level=WARN msg="eventbus: handler failed" topic=t group=g id=1 attempt=1 max_attempts=12 type=order.placed next_attempt_in=1s error=no error_class=bank`,
			`time=+0s level=ERROR msg="eventbus: event dead-lettered" topic=t group=g id=1 attempt=3 reason=exhausted dead_letter=t.dlq error=broken`,
			`time=+0s level=ERROR msg="eventbus: receive failed" topic=t error=down`,
			`time=+0s level=ERROR msg="eventbus: panic" events=1 error="eventbus: handler panicked: oh" stack=main.go:7`,
			`time=+0s level=ERROR msg="eventbus: extend failed" events=1 error="driver: eventbus: handler panicked: oh" stack=main.go:7`,
			`time=+0s level=INFO msg="eventbus: subscription running" topic=t group=g from=starting`,
		}, log.taken())
		o.Retried(observer.Retried{About: about, Outcome: observer.Retry, Err: errors.New("no")})
		about.Attempt = 1
		o.Retried(observer.Retried{About: about, Outcome: observer.Snooze, Err: errors.New("snoozed")})
		o.Stopped(observer.Stopped{})
		require.Empty(t, log.taken(), "only the first failed attempt is logged, and a Snooze is no failure")
		require.Equal(t, 11, fire(o), "failures, drops, retries, dead letters, discards, losses, stuck handlers, states, partitions, notices, the end")
	})
}

// Of 5,000 dead letters the first is written at once, the others as one line with their
// number. The line has the time at which it is written, and the times of the dead letters.
// Dead letters of another class of error have a line of their own.
func TestSlogTellsClassesOfDeadLettersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		for _, class := range []string{"network", "unknown-type", "network"} {
			o.DeadLettered(observer.DeadLettered{About: billing, Reason: "permanent", DeadLetter: "orders.dlq", Err: errors.New("no"), Class: class})
		}
		lines := log.taken()
		require.Len(t, lines, 2)
		require.Contains(t, lines[1], " error_class=unknown-type")
		o.Stopped(observer.Stopped{})
	})
}

func TestSlogCountsLinesOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		bury := func(id int, reason string) {
			about := billing
			about.ID = fmt.Sprint(id)
			if reason == "unreadable" {
				o.Failed(observer.Failed{Scope: observer.Decode, About: about, Events: 1, Err: errors.New("not JSON")})
			}
			o.DeadLettered(observer.DeadLettered{About: about, Reason: reason, DeadLetter: "orders.dlq", Err: errors.New("no")})
		}
		for i := range 5000 {
			bury(i, "exhausted")
			bury(i, "unreadable")
			time.Sleep(time.Millisecond)
		}
		const dead = `level=ERROR msg="eventbus: event dead-lettered" topic=orders group=billing `
		require.Equal(t, []string{
			`time=+0s ` + dead + `id=0 reason=exhausted dead_letter=orders.dlq error=no`,
			`time=+0s ` + dead + `id=0 reason=unreadable dead_letter=orders.dlq error=no`,
		}, log.taken())
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{
			`time=+10s ` + dead + `id=4999 reason=exhausted dead_letter=orders.dlq error=no repeated=4999 first=+1ms last=+4.999s`,
			`time=+10s ` + dead + `id=4999 reason=unreadable dead_letter=orders.dlq error=no repeated=4999 first=+1ms last=+4.999s`,
		}, log.taken())
		bury(5000, "exhausted")
		require.Equal(t, []string{`time=+1m5s ` + dead + `id=5000 reason=exhausted dead_letter=orders.dlq error=no`}, log.taken(),
			"a kind that was quiet is forgotten")
		time.Sleep(time.Second)
		bury(5001, "exhausted")
		bury(5002, "exhausted")
		time.Sleep(time.Second)
		o.Stopped(observer.Stopped{})
		require.Equal(t, []string{`time=+1m7s ` + dead + `id=5002 reason=exhausted dead_letter=orders.dlq error=no repeated=2 first=+1m6s last=+1m6s`},
			log.taken(), "nothing is lost when the bus stops")
		time.Sleep(time.Hour)
		require.Empty(t, log.taken(), "nothing is written twice")
	})
}

// A persistent failure is logged once a minute.
func TestSlogOfAnEndlessOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		for range 4000 {
			o.Failed(observer.Failed{Scope: observer.Ack, About: billing, Events: 3, Err: fmt.Errorf("redis: %w", backend.ErrFull)})
			time.Sleep(900 * time.Millisecond)
		}
		lines := log.taken()
		require.Len(t, lines, 1+3+58)
		require.Equal(t, `time=+10s level=ERROR msg="eventbus: ack failed" topic=orders group=billing events=33 error="redis: full" repeated=11 first=+900ms last=+9.9s`, lines[1])
	})
}

// An outage of a broker is two lines, however many subscriptions it concerns and however
// many kinds of calls fail. Another cause has lines of its own.
func TestSlogOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		down := fmt.Errorf("redis: dial: %w", backend.ErrUnavailable)
		change := func(i int, from, to observer.State, err error) {
			o.StateChanged(observer.StateChanged{Topic: fmt.Sprint("t", i), Group: "g", From: from, To: to, Err: err})
		}
		for n := range 25 {
			for i := range 20 {
				o.Failed(observer.Failed{Scope: observer.Receive, About: observer.About{Topic: fmt.Sprint("t", i), Group: "g"}, Err: down})
				if n == 0 {
					change(i, observer.Running, observer.Degraded, down)
				}
			}
			o.Failed(observer.Failed{Scope: observer.Ack, About: billing, Events: 100, Err: fmt.Errorf("redis: ack: %w", backend.ErrUnknownOutcome)})
			o.Failed(observer.Failed{Scope: observer.DeadLettering, About: observer.About{Topic: "t1", ID: "1"}, Err: down})
			time.Sleep(100 * time.Millisecond)
		}
		denied := fmt.Errorf("redis: %w", backend.ErrDenied)
		o.Failed(observer.Failed{Scope: observer.Receive, About: billing, Err: denied})
		change(20, observer.Running, observer.Degraded, denied)
		for i := range 20 {
			change(i, observer.Degraded, observer.Running, nil)
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, []string{
			`time=+0s level=ERROR msg="eventbus: receive failed" topic=t0 group=g error="redis: dial: unavailable"`,
			`time=+2.5s level=ERROR msg="eventbus: receive failed" topic=orders group=billing error="redis: denied"`,
			`time=+2.69s level=WARN msg="eventbus: subscriptions run again" since=+0s lasted=2.69s failures=550 subscriptions=20`,
		}, log.taken())
		time.Sleep(time.Second)
		change(20, observer.Degraded, observer.Running, nil)
		require.Equal(t, []string{
			`time=+3.7s level=WARN msg="eventbus: subscription running" topic=t20 group=g since=+2.5s lasted=1.2s failures=1 subscriptions=1`,
		}, log.taken())
		time.Sleep(time.Hour)
		require.Empty(t, log.taken())
	})
}

// While a broker comes and goes, an interval has few lines. The newest tells how often.
func TestSlogOfABrokerThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		for range 180 {
			o.Failed(observer.Failed{Scope: observer.Receive, About: billing, Err: io.EOF})
			o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Running, To: observer.Degraded, Err: io.EOF})
			time.Sleep(250 * time.Millisecond)
			o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Degraded, To: observer.Running})
			time.Sleep(280 * time.Millisecond) // so that no change meets the end of an interval
		}
		lines := log.taken()
		require.LessOrEqual(t, len(lines), 2+2*9, "%s", strings.Join(lines, "\n"))
		require.Equal(t, []string{
			`time=+0s level=ERROR msg="eventbus: receive failed" topic=orders group=billing error=EOF`,
			`time=+250ms level=WARN msg="eventbus: subscription running" topic=orders group=billing since=+0s lasted=250ms failures=1 subscriptions=1`,
		}, lines[:2])
		require.Contains(t, lines[2], "repeated=")
	})
}

// A subscription that ends while it is degraded does not end its outage, and changes of
// states that were dropped leave no outage open.
func TestSlogOfAnOutageWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		degrade := func() {
			o.Failed(observer.Failed{Scope: observer.Receive, About: billing, Err: io.EOF})
			o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Running, To: observer.Degraded, Err: io.EOF})
		}
		degrade()
		o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Degraded, To: observer.Draining})
		require.Equal(t, []string{
			`time=+0s level=ERROR msg="eventbus: receive failed" topic=orders group=billing error=EOF`,
			`time=+0s level=INFO msg="eventbus: subscription draining" topic=orders group=billing from=degraded`,
		}, log.taken())
		time.Sleep(time.Hour)
		degrade()
		o.Failed(observer.Failed{Scope: observer.Observe, Events: 9, Err: observer.ErrDropped})
		require.Len(t, log.taken(), 2)
		time.Sleep(time.Hour)
		o.StateChanged(observer.StateChanged{Topic: "orders", Group: "billing", From: observer.Degraded, To: observer.Running})
		require.Equal(t, []string{`time=+2h0m0s level=WARN msg="eventbus: subscription running" topic=orders group=billing from=degraded`}, log.taken())
	})
}

// Notices of one cause are one kind, even if their texts differ.
func TestSlogCountsNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLineLog()
		o := observer.Slog(slog.New(log))
		for i := range 4 {
			o.Noticed(observer.Noticed{Topic: "t", Group: fmt.Sprint(i), Text: fmt.Sprintf("the group was lost with %d", i), Err: backend.ErrGone})
		}
		o.Stopped(observer.Stopped{})
		require.Equal(t, []string{
			`time=+0s level=WARN msg="eventbus: the group was lost with 0" topic=t group=0 error=gone`,
			`time=+0s level=WARN msg="eventbus: the group was lost with 3" topic=t group=3 error=gone repeated=3 first=+0s last=+0s`,
		}, log.taken())
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

// A slog.Handler that panics does not end the program, even when an interval ends and no
// hook runs.
func TestAPanicAtTheEndOfAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := observer.Slog(slog.New(panicsLate{}))
		for range 5 {
			o.Failed(observer.Failed{Scope: observer.Ack, Err: errors.New("broken")})
		}
		time.Sleep(time.Minute)
	})
}
