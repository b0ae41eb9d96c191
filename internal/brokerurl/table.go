// Package brokerurl parses the URLs of brokers for the drivers.
package brokerurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Table has the known parameters of a URL, or the known settings of a topic, by name.
type Table map[string]Parameter

// A Parameter parses one parameter.
type Parameter struct {
	// Set stores a value. Its error continues a sentence that begins with the parameter's
	// name, such as "is not a number", and does not show the value.
	Set func(value string) error

	// Many allows the parameter more than once.
	Many bool
}

// Parameters parses and stores the parameters of u, in the order of their names. Its errors
// name the wrong parameter.
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
		if err := p.take(query[name]); err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	return nil
}

// Settings parses and stores the settings of a topic, in the order of their names. Its errors
// name the wrong setting.
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

func (p Parameter) take(values []string) error {
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
