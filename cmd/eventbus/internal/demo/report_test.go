package demo

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReportText(t *testing.T) {
	a := NewAccount("billing", "audit")
	a.Publish(2)
	for n := 1; n <= 2; n++ {
		a.Begin(0, n, "k")
		a.End(0, n, "k", Done)
	}
	a.Begin(1, 2, "k")
	a.End(1, 2, "k", Done)
	var out strings.Builder
	require.NoError(t, a.Report("the test", 1500*time.Millisecond).WriteText(&out))
	require.Equal(t, `2 events from the test in 1.5 s

group       published    handled    retried  dead-lettered  duplicated    lost  out of order
billing             2          2          0              0           0       0             0
audit               2          1          0              0           0       1             0

lost 1, out of order 0, duplicated 0
`, out.String())
}

func TestProgressIsLinesWhereNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAccount("billing", "audit")
		var out strings.Builder
		p := StartProgress(&out, a)
		a.Publish(10)
		time.Sleep(1500 * time.Millisecond)
		a.Bury(0, 1)
		time.Sleep(time.Second)
		p.Stop()
		require.Equal(t, "published 10  billing 0  audit 0\npublished 10  billing 1  audit 0\n", out.String())
	})
}

func TestProgressIsOneLineOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAccount("billing")
		var out strings.Builder
		p := newProgress(&out, true, a)
		time.Sleep(250 * time.Millisecond)
		p.Stop()
		const line = "\r\x1b[Kpublished 0  billing 0"
		require.Equal(t, line+line+"\r\x1b[K", out.String())
	})
}
