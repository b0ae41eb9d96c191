package alarm_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/alarm"
)

// rings reports after how long it rings, within a day.
func rings(a *alarm.Alarm) time.Duration {
	began := time.Now()
	select {
	case <-a.C():
		return time.Since(began)
	case <-time.After(24 * time.Hour):
		return -1
	}
}

func TestAlarm(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, test := range map[string]struct {
		do   func(a *alarm.Alarm)
		want time.Duration
	}{
		"set":               {func(a *alarm.Alarm) { a.Set(second) }, second},
		"not set":           {func(*alarm.Alarm) {}, -1},
		"at once":           {func(a *alarm.Alarm) { a.Set(0) }, 0},
		"past":              {func(a *alarm.Alarm) { a.Set(-second) }, 0},
		"later":             {func(a *alarm.Alarm) { a.Set(second); a.Set(3 * second) }, 3 * second},
		"earlier":           {func(a *alarm.Alarm) { a.Set(3 * second); a.Set(second) }, second},
		"stopped":           {func(a *alarm.Alarm) { a.Set(second); a.Stop() }, -1},
		"anew":              {func(a *alarm.Alarm) { a.Set(second); a.Stop(); a.Set(2 * second) }, 2 * second},
		"put off":           {func(a *alarm.Alarm) { a.Set(second); time.Sleep(second / 2); a.Set(second) }, second},
		"unheard":           {func(a *alarm.Alarm) { a.Set(second); time.Sleep(2 * second); a.Set(second) }, second},
		"taken back":        {func(a *alarm.Alarm) { a.Set(second); time.Sleep(2 * second); a.Stop() }, -1},
		"earlier and later": {func(a *alarm.Alarm) { a.Set(3 * second); a.Set(second); a.Set(4 * second) }, 4 * second},
		"after a ring":      {func(a *alarm.Alarm) { a.Set(second); <-a.C(); a.Set(second) }, second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := alarm.New()
				test.do(a)
				require.Equal(t, test.want, rings(a))
				require.EqualValues(t, -1, rings(a), "it rings once")
			})
		})
	}
}

func TestSettingAllocatesNothing(t *testing.T) {
	a := alarm.New()
	a.Set(time.Hour)
	require.Zero(t, testing.AllocsPerRun(100, func() { a.Set(time.Hour); a.Stop() }))
}
