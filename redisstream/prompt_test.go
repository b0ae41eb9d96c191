package redisstream_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A message is delivered soon after its delay is over, also by an idle server, which ends a
// read that waits up to 100 ms late. A delay may begin while a read waits or before. Only
// without other tests beside it does the test bound the times.
func TestDelaysEndPromptly(t *testing.T) {
	if !alone() {
		t.Parallel()
	}
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	publish(t, b, batch("a", 1))
	d := receive(t, s, 1)[0]
	for name, while := range map[string]bool{"while a read waits": true, "before the read": false} {
		for _, delay := range []time.Duration{0, 20 * time.Millisecond, 150 * time.Millisecond} {
			var late []time.Duration
			for range 9 {
				begun := make(chan time.Time, 1)
				held := d
				begin := func() {
					now := time.Now()
					if err := s.Delay(t.Context(), []backend.Delayed{{Delivery: held, For: delay, Refund: true}}); err != nil {
						t.Error(err)
					}
					begun <- now
				}
				if while {
					time.AfterFunc(30*time.Millisecond, begin)
				} else {
					begin()
				}
				d = receive(t, s, 1)[0]
				late = append(late, time.Since(<-begun)-delay)
			}
			slices.Sort(late)
			t.Logf("%s, %v: %v", name, delay, late)
			if alone() {
				require.Less(t, late[4], 40*time.Millisecond, "%s, half of the delays of %v", name, delay)
			}
		}
	}
}
