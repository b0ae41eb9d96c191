package batch_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/batch"
)

// A Group keeps no flushed item in memory, wherever it divided items into batches.
func TestNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := batch.New(6, batch.AtOnce, func([]*[64]byte) { time.Sleep(time.Second) })
		var items []weak.Pointer[[64]byte]
		for range 10 {
			item := new([64]byte)
			items = append(items, weak.Make(item))
			g.Add(item)
		}
		g.Wait()
		runtime.GC()
		for i, item := range items {
			require.Nil(t, item.Value(), "item %d", i)
		}
		runtime.KeepAlive(g)
	})
}
