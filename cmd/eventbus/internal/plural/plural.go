// Package plural writes numbers with their nouns.
package plural

import "fmt"

// Of returns n and the noun, which gets an s unless n is 1.
func Of[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
