// Package brokerurl parses broker URLs for the drivers.
package brokerurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Table holds the parameters that a URL may have, or the settings that a topic may have, by
// name.
type Table map[string]Parameter

// A Parameter parses one parameter.
type Parameter struct {
	// Set stores a value. Its error continues a sentence that begins with the parameter's
	// name, such as "is not a number", and does not show the value.
	Set func(value string) error

	// Many allows the parameter to be repeated.
	Many bool
}

// Parameters parses and stores the parameters of u, in the order of their names. Errors name the
// parameter that is wrong.
func (t Table) Parameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the URL's parameters are malformed")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p, known := t[name]
		if !known {
			return nearest.Parameter(name, t.names())
		}
		if err := p.set(query[name]); err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	return nil
}

// CheckHost returns an error if u names no host or several, or if its host seems to end within a
// password, at a character that should have been escaped. otherHosts is the parameter that names
// further hosts, or "" if there is none.
func CheckHost(u *url.URL, otherHosts string) error {
	names, _, _ := strings.Cut(u.RawQuery, "=")
	switch {
	case u.User == nil && strings.Contains(u.Path+names+u.Fragment, "@"):
		return errors.New("the URL has an @ behind its host: in a password / is written %2F, ? is written %3F, and # is written %23")
	case u.Fragment != "":
		return errors.New("the URL has something behind #, which in a password is written %23")
	case strings.Contains(u.Host, ",") && otherHosts != "":
		return fmt.Errorf("the URL names several hosts: name one there, and each further one by a parameter, as in ?%s=host:port", otherHosts)
	case strings.Contains(u.Host, ","):
		return errors.New("the URL names several hosts, but its scheme is for one server")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("the URL names no host behind //")
	}
	return nil
}

// Settings parses and stores the settings of a topic, in the order of their names. Errors name
// the setting that is wrong.
func (t Table) Settings(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		p, known := t[name]
		if !known {
			return fmt.Errorf("unknown setting %q%s", name, nearest.Hint("%q", name, t.names()))
		}
		if err := p.Set(settings[name]); err != nil {
			return fmt.Errorf("setting %q: %w", name, err)
		}
	}
	return nil
}

func (t Table) names() []string { return slices.Sorted(maps.Keys(t)) }

func (p Parameter) set(values []string) error {
	if len(values) > 1 && !p.Many {
		return fmt.Errorf("is given %d times", len(values))
	}
	for _, v := range values {
		if err := p.Set(v); err != nil {
			return err
		}
	}
	return nil
}
