package redisstream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/slab"
)

func TestPositionsAreIDsWithLeadingZeros(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"1-0":                    "00000000000001-00000000000000000000",
		"1795243593723-0":        "01795243593723-00000000000000000000",
		"1795243593723-17":       "01795243593723-00000000000000000017",
		"99999999999999-17":      "99999999999999-00000000000000000017",
		"0-18446744073709551615": "00000000000000-18446744073709551615",
		"100000000000000-1":      "a100000000000000-00000000000000000001",
		"1795243593723000-17":    "b1795243593723000-00000000000000000017",

		"18446744073709551615-18446744073709551615": "f18446744073709551615-18446744073709551615",
	} {
		got := position(new(slab.Slab), []byte(id))
		require.Equal(t, want, got, id)
		require.NoError(t, checkPosition(got), id)
	}
}

func TestWhatIsNoPositionIsRefused(t *testing.T) {
	t.Parallel()
	good := "01795243593723-00000000000000000000"
	require.NoError(t, checkPosition(good))
	require.NoError(t, checkPosition("1795243593723000-00000000000000000000"), "earlier versions wrote no letter")
	for _, bad := range []string{
		"", "-", "0", "$", "1-0", "00000000000000000007", good + "0", good[1:], strings.Replace(good, "-", "0", 1),
		"(" + good[1:], " " + good[1:], good[:20] + "x" + good[21:], good[:34] + "\n", "01795243593723-18446744073709551616",
		"01795243593723-99999999999999999999", "0179524359372-000000000000000000000", "+1795243593723-00000000000000000000",
		"a" + good, "a1795243593723000-00000000000000000000", "ab1795243593723000-00000000000000000000",
		"f18446744073709551616-00000000000000000000", "g179524359372300000000-00000000000000000000",
	} {
		require.Error(t, checkPosition(bad), "%q", bad)
	}
	require.Less(t, len(checkPosition(strings.Repeat("x", 1<<20)).Error()), 200, "an error does not show all of it")
}

// Positions compare as strings in the same order as their ids compare as numbers.
func TestPositionsAreOrderedAsTheirIDs(t *testing.T) {
	t.Parallel()
	millis := func() uint64 { return rand.Uint64() >> rand.IntN(64) }
	serial := func() uint64 { return rand.Uint64() >> rand.IntN(64) }
	for range 20_000 {
		a, b := [2]uint64{millis(), serial()}, [2]uint64{millis(), serial()}
		if rand.IntN(2) == 0 {
			b[0] = a[0]
		}
		if rand.IntN(10) == 0 {
			a[1], b[1] = math.MaxUint64, math.MaxUint64-1
		}
		of := func(id [2]uint64) string {
			return position(new(slab.Slab), fmt.Appendf(nil, "%d-%d", id[0], id[1]))
		}
		less := a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
		require.Equal(t, less, of(a) < of(b), "%v %v", a, b)
	}
}
