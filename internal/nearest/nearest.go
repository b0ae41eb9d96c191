// Package nearest suggests a known name for a mistyped one.
package nearest

import (
	"fmt"
	"strings"
)

// Parameter returns the error for an unknown parameter of a URL. It shows the parameter only if it looks like a name,
// because in an unescaped password the text after a '?' looks like a parameter too.
func Parameter(name string, known []string) error {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" || len(name) > 32 {
		return fmt.Errorf("an unknown parameter, not shown as it may be part of a password that is not escaped; known: %s",
			strings.Join(known, ", "))
	}
	hint := Hint("%q", name, known)
	if hint == "" {
		hint = "; known: " + strings.Join(known, ", ")
	}
	return fmt.Errorf("unknown parameter %q%s", name, hint)
}

// Hint returns "; did you mean …?" with the nearest known name in the given format, or "" if none is near.
func Hint(format, name string, known []string) string {
	best := Of(name, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean "+format+"?", best)
}

// Of returns the known name that takes the fewest edits from name. It returns "" if more than half of name would change,
// unless one of the two contains the other.
func Of(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		d := distance(name, k)
		part := len(name) > 2 && (strings.Contains(k, name) || strings.Contains(name, k))
		if (part || 2*d <= len(name)) && (least < 0 || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
