// Package pattern matches topic names with patterns.
//
// A pattern has the form of a name; see [backend.CheckName]. The part "*" matches one part of a
// name, and ">", which must be the last part, matches one or more. For example, "orders.*" matches
// "orders.eu" but not "orders.eu.north", which "orders.>" matches too. Wildcards don't match parts
// that the bus appends for its own topics, such as "dlq"; only patterns that name the part match
// these, such as "orders.*.dlq".
package pattern

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
)

const (
	one  = "*"
	rest = ">"
)

// own are the last parts of the topics that the bus creates: for dead letters, scheduled events
// (package internal/later), lifecycle records (package lifecycle) and replies (package request).
var own = []string{"dlq", "later", "lifecycle", "replies"}

// Presence is the topic of package presence, which no wildcard matches.
const Presence = "eventbus.presence"

// isOwn reports whether part is one of own, or is reserved by package partition.
func isOwn(part string) bool { return slices.Contains(own, part) || partition.Reserves(part) }

// Is reports whether s has a wildcard, and so is not a topic name.
func Is(s string) bool { return strings.ContainsAny(s, one+rest) }

// Check returns an error that says why s is neither a valid topic name nor a valid pattern.
func Check(s string) error {
	parts := strings.Split(s, ".")
	for i, part := range parts {
		switch {
		case part == rest && i < len(parts)-1:
			return fmt.Errorf("%q has %q before its last part", s, rest)
		case part == one, part == rest:
			parts[i] = "x"
		case Is(part):
			return fmt.Errorf("%q has a wildcard beside other characters of the part %q", s, part)
		}
	}
	return backend.CheckName(strings.Join(parts, "."))
}

// Match reports whether pattern, which may be a name, matches topic.
func Match(pattern, topic string) bool {
	if topic == Presence {
		return pattern == topic
	}
	for first := true; ; first = false {
		want, wants, more := strings.Cut(pattern, ".")
		part, parts, has := strings.Cut(topic, ".")
		switch {
		case want == rest:
			return !anyOwn(topic, first)
		case want == one && !first && isOwn(part):
			return false
		case want != one && want != part, more != has:
			return false
		case !more:
			return true
		}
		pattern, topic = wants, parts
	}
}

// anyOwn reports whether name has a part that is in own. If first is true, the first part is one
// that the program chose, and does not count.
func anyOwn(name string, first bool) bool {
	for i, part := range strings.Split(name, ".") {
		if isOwn(part) && !(first && i == 0) {
			return true
		}
	}
	return false
}

// Overlap reports whether some topic may match both x and y, which are names or patterns.
func Overlap(x, y string) bool {
	switch {
	case !Is(x):
		return Match(y, x)
	case !Is(y):
		return Match(x, y)
	}
	for {
		p, ps, more := strings.Cut(x, ".")
		q, qs, has := strings.Cut(y, ".")
		switch {
		case p == rest || q == rest:
			return true
		case p != q && p != one && q != one, more != has:
			return false
		case !more:
			return true
		}
		x, y = ps, qs
	}
}
