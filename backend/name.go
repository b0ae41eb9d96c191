package backend

import (
	"errors"
	"fmt"
	"strings"
)

// MaxName is the largest length of a topic or group name in bytes. Suffixes that the bus
// adds, such as ".dlq", count too.
const MaxName = 200

// CheckName returns an error that says why name cannot be the name of a topic or a group.
// A name has at most [MaxName] bytes. It is one or more tokens, joined by dots. A token is
// one or more of the letters A-Z and a-z, digits, underscores and hyphens. The bus checks
// every name before it calls a driver.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > MaxName:
		return fmt.Errorf("has %d bytes, more than %d", len(name), MaxName)
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return fmt.Errorf("%q has an empty token between dots", name)
	}
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		default:
			return fmt.Errorf("%q contains %q; allowed are letters, digits, '_' and '-', joined by '.'", name, r)
		}
	}
	return nil
}
