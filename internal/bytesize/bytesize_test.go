package bytesize_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/bytesize"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]int64{
		"0B": 0, "1B": 1, "007B": 7, "3KB": 3000, "3KiB": 3 << 10, "64MB": 64e6, "64MiB": 64 << 20, "2GB": 2e9, "1024GiB": bytesize.Max,
	} {
		got, err := bytesize.Parse(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
}

func TestWhatIsNoSize(t *testing.T) {
	for s, want := range map[string]string{
		"":                       "not a size, a whole number and a unit, such as 64MiB",
		"64":                     "not a size",
		"MiB":                    "not a size",
		"-1MiB":                  "not a size",
		"1.5MiB":                 "not a size",
		"1 2MiB":                 "not a size",
		"1025GiB":                "more than 1024GiB",
		"99999999999999999999B":  "more than 1024GiB",
		"64mib":                  "did you mean MiB?",
		"64 MiB":                 "did you mean MiB?",
		"64M":                    "did you mean MB?",
		"64TiB":                  "did you mean KiB?",
		"1MiB64MiB":              "not a size",
		"99999999999999999999YB": "unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB",
	} {
		_, err := bytesize.Parse(s)
		require.ErrorContains(t, err, want, s)
	}
}

// Parse accepts exactly the texts that match Pattern and are not too large. Its errors do
// not show the text.
func FuzzParse(f *testing.F) {
	form := regexp.MustCompile(`^` + bytesize.Pattern + `$`)
	for _, s := range []string{"64MiB", "1025GiB", "-1B", "1 MiB", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := bytesize.Parse(s)
		if err == nil {
			require.Regexp(t, form, s)
			require.GreaterOrEqual(t, n, int64(0))
			require.LessOrEqual(t, n, int64(bytesize.Max))
		} else if form.MatchString(s) {
			require.EqualError(t, err, "more than 1024GiB")
		}
		if _, err = bytesize.Parse("CANARY" + s); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Fatalf("%q: %v", s, err)
		}
	})
}
