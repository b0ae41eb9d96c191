// Package config opens a bus from one YAML file.
//
//	bus:
//	  url: redis://redis:6379
//	  service: shop
//	  subscriptions:
//	    billing: {topic: shop.orders, group: billing, concurrency: 16, retry: {attempts: 8}}
//
// Values can refer to environment variables as ${VARIABLE}; $$ is a dollar sign. A secret, here
// url, can be in a separate file, whose path is the value of url_file. docs/config.md lists all
// keys with their defaults.
//
// Your program adds what is not data: drivers, handlers, the observer, middleware, and limiters
// that several subscriptions share (except a rate). All errors of a file are reported together,
// each as an [Error] with its location. No error shows a secret.
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
	"sync"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/limiter"
)

// A Config is a parsed file. You can use its methods concurrently.
type Config struct {
	file      string
	bus       bus
	locations map[string]location // the location of each given key, by its path

	mu    sync.Mutex
	used  map[string]bool            // names of the subscriptions that the program has used
	rates map[string]limiter.Limiter // the limiters of limits.rate, by the name of the subscription
}

// Open loads file and opens the bus that it describes; see [Load] and [Config.Open]. Call it when
// your program starts, with the drivers of the backends that the file may name:
//
//	bus, cfg, err := config.Open(ctx, "eventbus.yaml", nil, inmemory.Driver{}, redisstream.Driver{})
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

// Load reads file, replacing each ${VARIABLE} in a value with the environment variable. It returns
// all errors together, each as an [Error].
func Load(file string) (*Config, error) {
	data, err := readAtMost(file, maxFile)
	if err != nil {
		return nil, &Error{File: file, Reason: err.Error(), Err: err}
	}
	return Parse(file, []byte(data), os.Environ())
}

// Parse is like [Load] for a file with the content data. environ is the environment in the form of
// os.Environ; nil means an empty one. Errors show name as the name of the file, and relative paths
// in data start from its directory.
func Parse(name string, data []byte, environ []string) (*Config, error) {
	p := &problems{file: name}
	d := &decoder{problems: p, environment: environment(environ), locations: map[string]location{}}
	var m model
	if root := readTree(data, p); root != nil {
		inheritDefaults(root, d)
		d.value(root, root.location, "", nil, reflect.ValueOf(&m).Elem())
	}
	c := &Config{file: name, bus: m.Bus, locations: d.locations, used: map[string]bool{}, rates: map[string]limiter.Limiter{}}
	names := c.Subscriptions()
	broken := func(name string) bool { return p.subscriptionFails(name, names) }
	for _, s := range names {
		if path := subscriptionPath(s); !broken(s) {
			o := c.bus.Subscriptions[s]
			if key, reason := o.Limits.contradiction(c.bus.Subscriptions, broken); key != "" {
				path = join(path, "limits."+key)
				p.add(c.locations[path], path, reason)
				continue
			}
			if _, err := o.effective(o.options()); err != nil {
				p.list = append(p.list, c.located(path, err))
			}
		}
	}
	for _, r := range c.Recurring() {
		if path := schedulePath(r.ID); !p.anyBelow(path) {
			if err := r.Check(); err != nil {
				p.list = append(p.list, c.located(path, err))
			}
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// effective returns o with defaults, as the bus uses it for the events of s, or the error
// with which the bus would refuse it.
func (s subscription) effective(o eventbus.SubscribeOptions) (_ eventbus.SubscribeOptions, err error) {
	if s.Batch != (batch{}) {
		if o, err = s.Batch.options().Options(o); err != nil {
			return o, err
		}
	}
	return o.Effective(string(s.Topic))
}

func subscriptionPath(name string) string { return "bus.subscriptions." + name }

// String returns the file's name and the number of subscriptions. It shows no values,
// because they may be secret.
func (c *Config) String() string {
	return fmt.Sprintf("config %s: %d subscriptions", filepath.Base(c.file), len(c.bus.Subscriptions))
}

// GoString is like String, so that %#v shows no secret.
func (c *Config) GoString() string { return c.String() }

// Options returns the bus options that the file sets.
func (c *Config) Options() eventbus.Options { return c.bus.options() }

// Subscriptions returns the names of the subscriptions, sorted.
func (c *Config) Subscriptions() []string { return slices.Sorted(maps.Keys(c.bus.Subscriptions)) }

// Subscription returns the topic and options of the subscription with this name. You can change
// the options and pass them to a method of the bus, such as SubscribeManual. If the file has no
// such subscription, the error is an [Error].
func (c *Config) Subscription(name string) (topic string, o eventbus.SubscribeOptions, err error) {
	s, ok := c.bus.Subscriptions[name]
	if !ok {
		return "", o, c.unknown(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used[name] = true
	o = s.options()
	o.Limiter = c.newLimiter(name)
	return string(s.Topic), o, nil
}

// unknown returns an error that says that the file has no subscription with this name.
func (c *Config) unknown(name string) error {
	return &Error{File: c.file, Reason: fmt.Sprintf("has no subscription %q%s", name, nearest.Hint("%q", name, c.Subscriptions()))}
}

// Subscribe subscribes h with the topic and options of the subscription with this name in
// the file. It refuses a subscription with batch options, which need SubscribeBatch.
func (c *Config) Subscribe(ctx context.Context, s eventbus.Subscriber, name string, h eventbus.Handler) (*eventbus.Subscription, error) {
	topic, o, err := c.Subscription(name)
	if err != nil {
		return nil, err
	}
	if c.Batch(name) != (eventbus.Batch{}) {
		path := subscriptionPath(name) + ".batch"
		return nil, c.located(path, errors.New("is set, but the program handles single events"))
	}
	sub, err := s.Subscribe(ctx, topic, o, h)
	if err != nil {
		return nil, c.located(subscriptionPath(name), err)
	}
	return sub, nil
}

// SubscribeBatch is like [Config.Subscribe], but for a handler of batches.
func (c *Config) SubscribeBatch(ctx context.Context, s eventbus.BatchSubscriber, name string, h eventbus.BatchHandler) (*eventbus.Subscription, error) {
	topic, o, err := c.Subscription(name)
	if err != nil {
		return nil, err
	}
	sub, err := s.SubscribeBatch(ctx, topic, o, c.Batch(name), h)
	if err != nil {
		return nil, c.located(subscriptionPath(name), err)
	}
	return sub, nil
}

// Batch returns the batch options of the subscription with this name: the zero Batch if the file
// sets none or has no such subscription.
func (c *Config) Batch(name string) eventbus.Batch {
	s := c.bus.Subscriptions[name]
	return s.Batch.options()
}

// Unused returns the names of the subscriptions for which you have called none of Subscription,
// Subscribe and SubscribeBatch, sorted. Call it after subscribing and log the result, because
// nothing handles the events of these subscriptions.
func (c *Config) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.Subscriptions(), func(name string) bool { return c.used[name] })
}
