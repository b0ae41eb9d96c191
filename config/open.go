package config

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// Open opens the bus that the file describes, with the first of drivers that serves the scheme of
// the URL. If change is not nil, Open calls it with the options of the file, so that you can add an
// observer or middleware, for example. ctx bounds Open itself, not the bus.
func (c *Config) Open(ctx context.Context, change func(*eventbus.Options), drivers ...backend.Driver) (*eventbus.Bus, error) {
	d, err := c.driver(ctx, drivers)
	if err != nil {
		return nil, err
	}
	o := c.Options()
	if change != nil {
		change(&o)
	}
	bus, err := eventbus.Open(ctx, c.bus.URL.reveal(), o, d)
	if err != nil {
		return nil, c.openError(err)
	}
	if err := c.recur(ctx, bus); err != nil {
		return nil, errors.Join(err, bus.Shutdown(context.WithoutCancel(ctx)))
	}
	return bus, nil
}

// OpenBare is like Open for a program that only inspects the backend: the bus has none of the
// options of the file, and OpenBare does not store its recurring events.
func (c *Config) OpenBare(ctx context.Context, drivers ...backend.Driver) (*eventbus.Bus, error) {
	d, err := c.driver(ctx, drivers)
	if err != nil {
		return nil, err
	}
	bus, err := eventbus.Open(ctx, c.bus.URL.reveal(), eventbus.Options{}, d)
	if err != nil {
		return nil, c.openError(err)
	}
	return bus, nil
}

// Check reports whether Open could use the file, without connecting to a broker. It returns an
// error if none of drivers serves the URL or if the driver does not know a topic setting. If the
// driver implements [backend.URLChecker], Check also checks the parameters of the URL.
func (c *Config) Check(ctx context.Context, drivers ...backend.Driver) error {
	_, err := c.driver(ctx, drivers)
	return err
}

// openError adds a location to an error of eventbus.Open: that of the key of the field that
// the error names, or otherwise the key of the URL.
func (c *Config) openError(err error) *Error {
	e := c.located("bus", err)
	if e.Path != "bus" {
		return e
	}
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok && f.Field == "url" {
		e.Reason = f.Reason
	}
	e.Reason = strings.TrimPrefix(e.Reason, "eventbus: ")
	for _, path := range []string{"bus.url", "bus.url_file"} {
		if at, given := c.locations[path]; given {
			e.Path, e.Line, e.Column = path, at.line, at.column
		}
	}
	return e
}

// noDriverError reports that no driver serves the URL. The error does not show the scheme of a
// text without "://", because it may be the start of a password. It shows only mem and bolt.
func (c *Config) noDriverError(err error, drivers []backend.Driver) *Error {
	e, text := c.openError(err), c.bus.URL.reveal()
	open := strings.Contains(text, "://") || strings.HasPrefix(text, "mem:") || strings.HasPrefix(text, "bolt:")
	if errors.Is(err, errors.ErrUnsupported) && !open {
		var known []string
		for _, d := range drivers {
			known = append(known, d.Schemes()...)
		}
		e.Reason = "has a scheme, not shown as it may be part of a secret, that no driver serves; there are " + cmp.Or(strings.Join(known, ", "), "none")
		e.Err = errors.ErrUnsupported
	}
	return e
}

// driver returns the driver that serves the URL, configured with the settings of the file
// for single topics. It checks everything that needs no broker.
func (c *Config) driver(ctx context.Context, drivers []backend.Driver) (backend.Driver, error) {
	var found match
	tried := make([]backend.Driver, len(drivers))
	for i, d := range drivers {
		if d != nil { // eventbus.Open reports a nil driver
			tried[i] = recordingDriver{Driver: d, match: &found}
		}
	}
	_, err := eventbus.Open(ctx, c.bus.URL.reveal(), eventbus.Options{}, tried...)
	chosen := found.driver
	if chosen == nil {
		return nil, c.noDriverError(err, drivers)
	}
	p := &problems{file: c.file}
	for _, topic := range slices.Sorted(maps.Keys(c.bus.Topics)) {
		settings := make(map[string]string, len(c.bus.Topics[topic].Driver))
		for k, v := range c.bus.Topics[topic].Driver {
			settings[k] = string(v)
		}
		names := []string{topic}
		if n := int(c.bus.Topics[topic].Partitions); n > 0 {
			names = eventbus.PartitionTopics(topic, n)
		}
		for _, name := range names {
			next, err := configured(chosen, name, settings)
			if err != nil {
				p.list = append(p.list, c.located("bus.topics."+topic+wrongSetting(chosen, name, settings, err), err))
				break
			}
			chosen = next
		}
	}
	if checker, ok := chosen.(backend.URLChecker); ok {
		if err := checker.CheckURL(found.url); err != nil {
			p.list = append(p.list, c.openError(err))
		}
	}
	return chosen, p.err()
}

// configured returns d, configured with the settings of one topic.
func configured(d backend.Driver, topic string, settings map[string]string) (backend.Driver, error) {
	if len(settings) == 0 {
		return d, nil
	}
	if t, ok := d.(backend.TopicConfigurer); ok {
		return t.ConfigureTopic(topic, settings)
	}
	names := strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
	return nil, &unsupportedError{"the driver of " + d.Schemes()[0] + ": has no settings of topics, and does not know: " + names}
}

// wrongSetting returns the key, with a dot before it, whose setting alone causes err; "" if
// no single setting does.
func wrongSetting(d backend.Driver, topic string, settings map[string]string, err error) string {
	if errors.Is(err, errors.ErrUnsupported) {
		return "" // the driver knows no settings at all
	}
	for key, value := range settings {
		if _, alone := configured(d, topic, map[string]string{key: value}); alone != nil && alone.Error() == err.Error() {
			return "." + key
		}
	}
	return ""
}

// An unsupportedError matches errors.ErrUnsupported.
type unsupportedError struct{ reason string }

func (e *unsupportedError) Error() string { return e.reason }
func (e *unsupportedError) Unwrap() error { return errors.ErrUnsupported }

// A recordingDriver records which driver would open a URL, and opens nothing.
type recordingDriver struct {
	backend.Driver
	match *match
}

// A match is a driver and the URL that it would open.
type match struct {
	driver backend.Driver
	url    *url.URL
}

var errNotOpened = errors.New("not to be opened")

func (s recordingDriver) Open(_ context.Context, u *url.URL) (backend.Backend, error) {
	*s.match = match{s.Driver, u}
	return nil, errNotOpened
}
