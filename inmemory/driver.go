package inmemory

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/brokerurl"
)

// Options limit a [Backend]. A field of zero or less means its default.
type Options struct {
	MaxMessages int           // the most messages in all topics together; default 1,048,576
	MaxBytes    int64         // the largest sum of their Message.Size; default 1 GiB
	OnceWindow  time.Duration // how long Message.Once remembers an ID; default 2 minutes
}

func (o Options) withDefaults() Options {
	if o.MaxMessages <= 0 {
		o.MaxMessages = 1 << 20
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.OnceWindow <= 0 {
		o.OnceWindow = 2 * time.Minute
	}
	return o
}

// A Driver opens backends by a URL such as "mem:?max_messages=1000". Each backend is new
// and empty. The parameters are the fields of [Options]: max_messages, max_bytes (such as
// "64MiB") and once_window (such as "90s").
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
		return nil, failed(err, "open")
	}
	return New(o), nil
}

// CheckURL implements [backend.URLChecker].
func (Driver) CheckURL(u *url.URL) error {
	_, err := parse(u)
	if err != nil {
		err = fmt.Errorf("inmemory: %w", err)
	}
	return err
}

func parse(u *url.URL) (o Options, err error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return o, errors.New(`the URL is "mem:" and parameters, nothing else`)
	}
	err = brokerurl.Table{
		"max_messages": brokerurl.Count(&o.MaxMessages, 1),
		"max_bytes":    brokerurl.Size(&o.MaxBytes),
		"once_window":  brokerurl.Duration(&o.OnceWindow),
	}.Parameters(u)
	return o, err
}
