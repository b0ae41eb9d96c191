package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestLoggingWritesOneRecord(t *testing.T) {
	const about = ` topic=orders group=billing type=order.placed id=e1 attempt=2 duration=3s`
	for _, row := range []struct {
		name, want string
		handler    eventbus.Handler
	}{
		{
			"success", `level=DEBUG msg="eventbus: event handled"` + about + "\n",
			func(context.Context, *eventbus.Delivery) error { return nil },
		},
		{
			"failure", `level=WARN msg="eventbus: event not handled"` + about + " error=\"no stock\"\n",
			func(context.Context, *eventbus.Delivery) error { return errors.New("no stock") },
		},
		{
			"failure without a text", `level=WARN msg="eventbus: event not handled"` + about + " error=\"\"\n",
			func(context.Context, *eventbus.Delivery) error { return errors.New("") },
		},
		{
			"panic", `level=WARN msg="eventbus: event not handled"` + about + " error=\"the handler panicked or ended its goroutine\"\n",
			func(context.Context, *eventbus.Delivery) error { panic("boom") },
		},
		{
			"goexit", `level=WARN msg="eventbus: event not handled"` + about + " error=\"the handler panicked or ended its goroutine\"\n",
			func(context.Context, *eventbus.Delivery) error { runtime.Goexit(); return nil },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				h := middleware.Logging(textLogger(&out))(func(ctx context.Context, d *eventbus.Delivery) error {
					time.Sleep(3 * time.Second)
					d.ID = "changed by the handler"
					return row.handler(ctx, d)
				})
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					h(t.Context(), &eventbus.Delivery{
						Event: eventbus.Event{ID: "e1", Type: "order.placed", Payload: []byte("secret")},
						Topic: "orders", Group: "billing", Attempt: 2,
					})
				}()
				v := <-ended
				require.Equal(t, row.want, out.String())
				require.Equal(t, row.name == "panic", v == "boom", "the panic passes through as it is")
			})
		})
	}
}

func TestLoggingWithoutALoggerUsesTheDefault(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	h := middleware.Logging(nil)(func(context.Context, *eventbus.Delivery) error { return nil })
	slog.SetDefault(textLogger(&out)) // after the wrapper was made
	require.NoError(t, h(t.Context(), &eventbus.Delivery{}))
	require.Contains(t, out.String(), "event handled")
}

func textLogger(out *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
