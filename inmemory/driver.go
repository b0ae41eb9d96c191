package inmemory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Driver opens backends by a URL such as "mem:?max_messages=1000". Each is new
// and empty. The parameters are those of [Options]: max_messages, max_bytes and
// once_window, for example "90s".
type Driver struct{}

var (
	_ backend.Driver     = Driver{}
	_ backend.URLChecker = Driver{}
)

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string { return []string{"mem"} }

// Open implements [backend.Driver].
func (Driver) Open(_ context.Context, u *url.URL) (backend.Backend, error) {
	o, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("inmemory: open: %w", err)
	}
	return New(o), nil
}

// CheckURL implements [backend.URLChecker].
func (Driver) CheckURL(u *url.URL) error {
	if _, err := parse(u); err != nil {
		return fmt.Errorf("inmemory: %w", err)
	}
	return nil
}

var parameters = map[string]func(*Options, string) error{
	"max_messages": func(o *Options, v string) (err error) {
		o.MaxMessages, err = strconv.Atoi(v)
		return positive(o.MaxMessages, err)
	},
	"max_bytes": func(o *Options, v string) (err error) {
		o.MaxBytes, err = strconv.ParseInt(v, 10, 64)
		return positive(o.MaxBytes, err)
	},
	"once_window": func(o *Options, v string) (err error) {
		o.OnceWindow, err = time.ParseDuration(v)
		return positive(o.OnceWindow, err)
	},
}

func positive[N int | int64 | time.Duration](n N, err error) error {
	if err == nil && n <= 0 {
		err = errors.New("must be positive")
	}
	return err
}

func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return o, errors.New(`the URL is "mem:" and parameters, nothing else`)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, errors.New("the URL's parameters are malformed")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		set := parameters[name]
		switch {
		case set == nil:
			return o, nearest.Parameter(name, slices.Sorted(maps.Keys(parameters)))
		case len(query[name]) > 1:
			return o, fmt.Errorf("parameter %q is given %d times", name, len(query[name]))
		}
		if err := set(&o, query[name][0]); err != nil {
			return o, fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	return o, nil
}
