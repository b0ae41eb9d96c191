// Package config makes a running bus of one YAML file.
//
//	bus:
//	  url: redis://redis:6379
//	  service: shop
//	  subscriptions:
//	    billing: {topic: shop.orders, group: billing, concurrency: 16, retry: {attempts: 8}}
//
// Every value may hold ${VARIABLE} of the environment; $$ is a dollar. A secret,
// here url, may be in a file of its own: url_file. A variable EVENTBUS_BUS_…
// takes the place of a key: its path in upper case, dots and dashes as
// underscores, such as EVENTBUS_BUS_SUBSCRIPTIONS_BILLING_CONCURRENCY. All keys,
// with their defaults, are in docs/config.md.
//
// What is not data stays in the program: handlers, the observer, middleware,
// limiters. All errors of a file are reported together, each an [Error] with its
// place; none shows a secret.
package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Config is what a file says. Its methods are safe for concurrent use.
type Config struct {
	file   string
	bus    bus
	places map[string]place // of what is given, by path

	mu    sync.Mutex
	asked map[string]bool // subscriptions, by name
}

// Open opens the bus that file describes, as [Load] and [Config.Open] do. It
// belongs at the start of a program:
//
//	bus, cfg, err := config.Open(ctx, "eventbus.yaml", nil)
//	…
//	_, err = cfg.Subscribe(ctx, bus, "billing", handler)
func Open(ctx context.Context, file string, change func(*eventbus.Options), drivers ...backend.Driver) (*eventbus.Bus, *Config, error) {
	c, err := Load(file)
	if err != nil {
		return nil, nil, err
	}
	bus, err := c.Open(ctx, change, drivers...)
	if err != nil {
		return nil, nil, err
	}
	return bus, c, nil
}

// Load reads file, with the environment of the process.
func Load(file string) (*Config, error) {
	data, err := readSome(file, maxFile)
	if err != nil {
		return nil, &Error{File: file, Reason: err.Error(), Err: err}
	}
	return Parse(file, []byte(data), os.Environ())
}

// Parse reads data as the file called name, beside which relative paths are
// found. environ is the environment, in the form of os.Environ; nil is none.
func Parse(name string, data []byte, environ []string) (*Config, error) {
	p := &problems{file: name}
	d := &decoder{problems: p, environment: environment(environ), places: map[string]place{}}
	var m model
	if root := readTree(data, p); root != nil {
		override(root, d.environment, p)
		d.value(root, root.place, "", nil, reflect.ValueOf(&m).Elem())
	}
	c := &Config{file: name, bus: m.Bus, places: d.places, asked: map[string]bool{}}
	for _, s := range c.Subscriptions() {
		if path := subscriptionPath(s); !p.within(path) {
			o := c.bus.Subscriptions[s]
			if _, err := o.options().Effective(string(o.Topic)); err != nil {
				p.list = append(p.list, c.placed(path, err))
			}
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func subscriptionPath(name string) string { return "bus.subscriptions." + name }

// placed says where in the file an error of package eventbus comes from, as far
// as that can be told: at path or, if it is a FieldError, at the key below path
// that sets the field.
func (c *Config) placed(path string, err error) *Error {
	e := &Error{File: c.file, Path: path, Reason: err.Error(), Err: err}
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		e.Reason = strings.TrimPrefix(f.Error(), "eventbus: ")
		for _, option := range options {
			if option.field == f.Field {
				e.Path, e.Reason = path+"."+option.path, keyNames.Replace(f.Reason)
			}
		}
	}
	at, given := c.places[e.Path]
	if !given {
		at = c.places[path]
	}
	e.Line, e.Column, e.Variable = at.line, at.column, at.variable
	return e
}

// keyNames are for reasons that speak of other fields of package eventbus.
var keyNames = strings.NewReplacer("Concurrency", "concurrency", "Lease", "lease", "Initial", "the first")

// options say which key sets a field of package eventbus, from the bus or the
// subscription downwards.
var options = slices.Concat(keysOf(reflect.TypeFor[bus](), ""), keysOf(reflect.TypeFor[subscription](), ""))

// An option is a field of package eventbus and the path of its key.
type option struct{ field, path string }

func keysOf(t reflect.Type, path string) (list []option) {
	for _, f := range fields(t) {
		for _, o := range f.options {
			list = append(list, option{o, join(path, f.key)})
		}
		if _, ok := asLeaf(reflect.New(f.typ).Elem()); !ok && f.typ.Kind() == reflect.Struct {
			list = append(list, keysOf(f.typ, join(path, f.key))...)
		}
	}
	return list
}

// String names the file and says how much is in it, nothing else.
func (c *Config) String() string {
	return fmt.Sprintf("config %s: %d subscriptions", filepath.Base(c.file), len(c.bus.Subscriptions))
}

// GoString is as String.
func (c *Config) GoString() string { return c.String() }

// Options are those of the bus, as far as the file gives them.
func (c *Config) Options() eventbus.Options { return c.bus.options() }

// Subscriptions are the names of the subscriptions, sorted.
func (c *Config) Subscriptions() []string { return slices.Sorted(maps.Keys(c.bus.Subscriptions)) }

// Subscription returns the topic and the options of the subscription name, for
// a program that adds to them, or calls SubscribeManual.
func (c *Config) Subscription(name string) (topic string, o eventbus.SubscribeOptions, err error) {
	s, ok := c.bus.Subscriptions[name]
	if !ok {
		return "", o, c.unknown(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[name] = true
	return string(s.Topic), s.options(), nil
}

// unknown says that a subscription is not in the file.
func (c *Config) unknown(name string) error {
	return &Error{File: c.file, Reason: fmt.Sprintf("has no subscription %q%s", name, nearest.Hint("%q", name, c.Subscriptions()))}
}

// Subscribe subscribes h as the file says under name.
func (c *Config) Subscribe(ctx context.Context, s eventbus.Subscriber, name string, h eventbus.Handler) (*eventbus.Subscription, error) {
	topic, o, err := c.Subscription(name)
	if err != nil {
		return nil, err
	}
	sub, err := s.Subscribe(ctx, topic, o, h)
	if err != nil {
		return nil, c.placed(subscriptionPath(name), err)
	}
	return sub, nil
}

// Unused are the subscriptions that the program has not asked for, sorted: what
// it should complain about when it has subscribed, as nobody handles them.
func (c *Config) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.Subscriptions(), func(name string) bool { return c.asked[name] })
}
