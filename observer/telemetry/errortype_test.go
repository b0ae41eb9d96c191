package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A codedError names its own type.
type codedError struct{}

func (codedError) Error() string     { return "the card is refused" }
func (codedError) ErrorType() string { return "card_refused" }

// error.type has few values. Snooze and Drop are no errors.
func TestErrorTypes(t *testing.T) {
	for _, row := range []struct {
		name      string
		handle    func(ctx context.Context) error
		errorType string // of the span and of the metric
		outcome   observer.Outcome
	}{
		{"success", func(context.Context) error { return nil }, "", observer.Acknowledge},
		{"error", func(context.Context) error { return errors.New("order 4711") }, "_OTHER", observer.Retry},
		{"own", func(context.Context) error { return fmt.Errorf("pay: %w", codedError{}) }, "card_refused", observer.Retry},
		{"permanent", func(context.Context) error { return eventbus.Permanent(codedError{}) }, "card_refused", observer.DeadLetter},
		{"later", func(context.Context) error { return eventbus.RetryAfter(io.EOF, time.Hour) }, "_OTHER", observer.Retry},
		{"snooze", func(context.Context) error { return eventbus.Snooze(time.Hour) }, "", observer.Snooze},
		{"drop", func(context.Context) error { return eventbus.Drop("of another tenant") }, "", observer.Discard},
		{"panic", func(context.Context) error { panic("boom") }, "panic", observer.Retry},
		{"goexit", func(context.Context) error { runtime.Goexit(); return nil }, "panic", observer.Retry},
		{"timeout", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "timeout", observer.Retry},
		{"class", func(context.Context) error { return fmt.Errorf("read: %w", io.ErrUnexpectedEOF) }, "cut_off", observer.Retry},
		{"class of an own type", func(context.Context) error { return fmt.Errorf("%w: %w", codedError{}, io.ErrUnexpectedEOF) }, "cut_off", observer.Retry},
		{"dropped", func(context.Context) error { return eventbus.ErrDropped }, "dropped", observer.Retry},
		{"full", func(context.Context) error { return eventbus.ErrFull }, "full", observer.Retry},
		{"field", func(context.Context) error { return &eventbus.FieldError{Field: "x"} }, "invalid", observer.Retry},
	} {
		t.Run(row.name, func(t *testing.T) {
			classes := []eventbus.ErrorClass{{Name: "cut_off", Is: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }}}
			inBubble(t, telemetry.Options{ErrorClasses: classes}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
				subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
					if d.Attempt > 1 {
						return nil
					}
					return row.handle(ctx)
				})
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
				time.Sleep(2 * time.Minute) // the timeout is a minute
				synctest.Wait()
				got := attribute.NewSet(r.span("process", 0).Attributes()...)
				value, _ := got.Value("error.type")
				require.Equal(t, row.errorType, value.AsString())
				labels := []attribute.KeyValue{attribute.String("eventbus.outcome", string(row.outcome))}
				if row.errorType != "" {
					labels = append(labels, attribute.String("error.type", row.errorType))
				}
				require.EqualValues(t, 1, r.value("eventbus.attempts", labels...))
			})
		})
	}
}

// Classes are for errors of handlers, not for errors of Publish.
func TestClassesAreForHandlers(t *testing.T) {
	all := []eventbus.ErrorClass{{Name: "any", Is: func(error) bool { return true }}}
	inBubble(t, telemetry.Options{ErrorClasses: all}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		require.Error(t, bus.Publish(t.Context(), "orders", &eventbus.Event{TTL: -1}))
		require.EqualValues(t, 1, r.value("messaging.client.sent.messages", attribute.String("error.type", "invalid")))
	})
}

// Another program may store any bytes as the type of an event. Exporters get UTF-8.
func TestTypesOfOtherPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newRecorder(t, telemetry.Options{}), inmemory.New(inmemory.Options{})
		bus := r.bus(b)
		subscribe(t, bus, succeed)
		for _, eventType := range []string{"bad\xff", strings.Repeat("x", 513)} {
			m := &backend.Message{Topic: "orders", ID: "id\xff", Headers: backend.Headers{{Name: "ce-type", Value: eventType}}}
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
			<-r.settled
		}
		require.EqualValues(t, 2, r.value("eventbus.attempts", attribute.String("eventbus.event.type", "_OTHER")))
		for _, a := range r.span("process", 0).Attributes() {
			require.True(t, utf8.ValidString(a.Value.String()), a.Key)
		}
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// An error may have any bytes, such as the output of a command. Exporters get UTF-8.
func TestErrorsThatAreNotUTF8(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { return eventbus.Permanent(errors.New("cut o\xff")) })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		<-r.settled
		require.Equal(t, "cut o�", r.span("process", 0).Status().Description)
		bad := &eventbus.Event{ID: "id\xff"}
		require.Error(t, bus.Publish(t.Context(), "orders", bad))
		require.Error(t, bus.Publish(t.Context(), "orders", bad, bad))
		for _, s := range r.spans.Ended() {
			for _, a := range s.Attributes() {
				require.True(t, utf8.ValidString(a.Value.String()), "%s %s", s.Name(), a.Key)
			}
		}
	})
}

// The bus finds the panic of a handler, with its stack, behind the middleware.
func TestAPanicKeepsItsStack(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, _ *eventbus.Bus) {
		o := r.options()
		failed := make(chan observer.Failed, 1)
		o.Observer = observer.Join(o.Observer, observer.Observer{Failed: func(f observer.Failed) { failed <- f }})
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		require.NoError(t, err)
		subscribe(t, bus, boom)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		p, ok := errors.AsType[*observer.PanicError]((<-failed).Err)
		require.True(t, ok)
		require.Equal(t, "boom", p.Value)
		require.Contains(t, string(p.Stack), "telemetry_test.boom")
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

func boom(context.Context, *eventbus.Delivery) error { panic("boom") }

// An SDK that panics harms neither publishers, nor handlers, nor the observers beside it.
func TestASinkThatPanics(t *testing.T) {
	for name, row := range map[string]struct {
		tracers trace.TracerProvider
		meters  metric.MeterProvider
	}{
		"spans":   {tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&panicking{}))},
		"ends":    {tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&panicking{started: true}))},
		"metrics": {meters: panickingMeters{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel, err := telemetry.New(row.tracers, row.meters, telemetry.Options{})
				require.NoError(t, err)
				var told atomic.Int64
				otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
					told.Add(1)
					require.EqualError(t, err, "eventbus: telemetry panicked: the exporter is broken")
				}))
				defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
				r := recorder{t: t, telemetry: tel, settled: make(chan int, 1)}
				o := r.options()
				var attempts, dead int
				o.Observer = observer.Join(o.Observer, observer.Observer{DeadLettered: func(observer.DeadLettered) { dead++ }})
				bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
				require.NoError(t, err)
				subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { attempts++; return io.EOF })
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
				require.Equal(t, 1, <-r.settled)
				require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
				require.Equal(t, 2, attempts)
				require.Equal(t, 1, dead, "the other observer is notified")
				require.GreaterOrEqual(t, told.Load(), int64(4))
			})
		})
	}
}

// panicking is a span processor that panics when a span starts, or when it ends.
type panicking struct {
	sdktrace.SpanProcessor
	started bool
}

func (p *panicking) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	if !p.started {
		panic("the exporter is broken")
	}
}

func (p *panicking) OnEnd(sdktrace.ReadOnlySpan) { panic("the exporter is broken") }

// panickingMeters has counters that panic.
type panickingMeters struct{ metricnoop.MeterProvider }

func (panickingMeters) Meter(string, ...metric.MeterOption) metric.Meter { return panickingMeter{} }

type panickingMeter struct{ metricnoop.Meter }

func (panickingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return panickingCounter{}, nil
}

type panickingCounter struct{ metricnoop.Int64Counter }

func (panickingCounter) Add(context.Context, int64, ...metric.AddOption) {
	panic("the exporter is broken")
}
