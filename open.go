package eventbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/observer"
)

// Open returns a bus on the backend that rawURL names, such as "mem:". It uses the first of
// drivers that serves the URL's scheme. ctx and o.OpenTimeout bound Open, not the bus. Errors do not show the
// URL, because it may contain a password.
func Open(ctx context.Context, rawURL string, o Options, drivers ...backend.Driver) (*Bus, error) {
	if isHostPort(rawURL) {
		return nil, &FieldError{Field: "url", Reason: "has no scheme, such as redis: in redis://HOST:PORT"}
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, &FieldError{Field: "url", Reason: "cannot be parsed: " + parseReason(err) + passwordHint(rawURL)}
	}
	if u.Scheme == "" {
		return nil, &FieldError{Field: "url", Reason: "has no scheme, such as mem:"}
	}
	d, err := driverFor(u.Scheme, drivers)
	if err != nil {
		return nil, err
	}
	if o.OpenTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.OpenTimeout)
		defer cancel()
	}
	var b backend.Backend
	err = patiently(ctx, o, func() (err error) { b, err = d.Open(ctx, u); return err })
	if err != nil {
		return nil, &Error{Op: "open " + u.Scheme, Err: err}
	}
	bus, err := New(b, o)
	if err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		return nil, err
	}
	if err := patiently(ctx, o, func() error { return bus.engine.Declare(ctx) }); err != nil {
		return nil, errors.Join(&Error{Op: "open " + u.Scheme, Err: err}, bus.Shutdown(context.WithoutCancel(ctx)))
	}
	return bus, nil
}

// isHostPort reports whether s is a host and a port, such as localhost:6379.
func isHostPort(s string) bool {
	host, port, ok := strings.Cut(s, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return ok && err == nil && host != "" && !strings.ContainsAny(host, "/@?#")
}

// patiently calls f. While the broker does not answer, patiently tries again each second until ctx
// is done, if there is an OpenTimeout.
func patiently(ctx context.Context, o Options, f func() error) error {
	failed := o.Effective().Observer.Failed
	for again := time.NewTicker(time.Second); ; {
		err := f()
		if err == nil || o.OpenTimeout <= 0 || !errors.Is(err, backend.ErrUnavailable) || ctx.Err() != nil {
			again.Stop()
			return err
		}
		if failed != nil {
			failed(observer.Failed{Scope: observer.Open, Err: err})
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return err
		}
	}
}

// parseReason returns the reason of an error of url.Parse, without the URL.
func parseReason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	for _, known := range []string{"invalid port", "invalid userinfo", "invalid control character", "missing protocol scheme", "invalid URL escape", "first path segment"} {
		if strings.Contains(err.Error(), known) {
			return known
		}
	}
	return "not a URL"
}

// passwordHint returns the remedy for a URL whose host seems to end within a password, at a
// character that is not escaped.
func passwordHint(rawURL string) string {
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 || strings.Contains(rest[:end], "@") || !strings.Contains(rest[end:], "@") {
		return ""
	}
	return "; in a password / is written %2F, ? is written %3F, and # is written %23"
}

// knownDrivers maps the schemes of this project to the packages of their drivers.
var knownDrivers = map[string]string{
	"mem":   "inmemory",
	"bolt":  "bolt",
	"redis": "redisstream", "rediss": "redisstream", "unix": "redisstream",
	"redis+sentinel": "redisstream", "redis+cluster": "redisstream",
	"nats": "nats", "tls": "nats",
}

func driverFor(scheme string, drivers []backend.Driver) (backend.Driver, error) {
	if i := slices.Index(drivers, nil); i >= 0 {
		return nil, &FieldError{Field: fmt.Sprintf("drivers[%d]", i), Reason: "is nil"}
	}
	var known []string
	for _, d := range drivers {
		for _, s := range d.Schemes() {
			if s == scheme {
				return d, nil
			}
			known = append(known, s)
		}
	}
	reason := fmt.Sprintf("has the scheme %q, which no driver given to Open serves", scheme)
	if len(drivers) == 0 {
		reason = fmt.Sprintf("has the scheme %q, and no driver was given", scheme)
	}
	switch pkg := knownDrivers[scheme]; {
	case pkg != "":
		reason += ": add " + pkg + ".Driver{}"
	case len(known) > 0:
		reason += cmp.Or(nearest.Hint("%s:", scheme, known), "; served: "+strings.Join(known, ", "))
	}
	return nil, &FieldError{Field: "url", Reason: reason, Err: errors.ErrUnsupported}
}
