// Package bytesize parses sizes such as 64MiB.
package bytesize

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/internal/nearest"
)

// Pattern is the form of a size as a regular expression.
const Pattern = `[0-9]+(KiB|MiB|GiB|KB|MB|GB|B)`

// Max is the largest size.
const Max = 1 << 40

// ErrForm means that a text is not a whole number followed by a unit.
var ErrForm = errors.New("not a size, a whole number and a unit, such as 64MiB")

var units = []struct {
	name  string
	bytes uint64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
}

// Parse returns the bytes of a size. Its errors do not show s.
func Parse(s string) (int64, error) {
	end := strings.LastIndexFunc(s, func(r rune) bool { return '0' <= r && r <= '9' }) + 1
	unit := s[end:]
	n, err := strconv.ParseUint(s[:end], 10, 63)
	if errors.Is(err, strconv.ErrSyntax) || unit == "" {
		return 0, ErrForm
	}
	for _, u := range units {
		if u.name != unit {
			continue
		}
		if err != nil || n > Max/u.bytes {
			return 0, errors.New("more than 1024GiB")
		}
		return int64(n * u.bytes), nil
	}
	return 0, fmt.Errorf("unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB%s", hint(unit))
}

// hint suggests the unit that was probably meant, ignoring case.
func hint(unit string) string {
	names := make([]string, len(units))
	for i, u := range units {
		if strings.EqualFold(u.name, strings.TrimSpace(unit)) || strings.EqualFold(u.name, unit+"B") {
			unit = u.name
		}
		names[i] = u.name
	}
	return nearest.Hint("%s", unit, names)
}
