package eventbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// Open returns a bus on the backend that rawURL names, such as "mem:". It uses the first of
// drivers that serves the URL's scheme. ctx bounds Open, not the bus. Errors do not show the
// URL, because it may contain a password.
func Open(ctx context.Context, rawURL string, o Options, drivers ...backend.Driver) (*Bus, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, &FieldError{Field: "url", Reason: "cannot be parsed: " + parseReason(err)}
	}
	if u.Scheme == "" {
		return nil, &FieldError{Field: "url", Reason: "has no scheme, such as mem:"}
	}
	d, err := driverFor(u.Scheme, drivers)
	if err != nil {
		return nil, err
	}
	b, err := d.Open(ctx, u)
	if err != nil {
		return nil, &Error{Op: "open " + u.Scheme, Err: err}
	}
	bus, err := New(b, o)
	if err != nil && b != nil {
		return nil, errors.Join(err, b.Close())
	}
	return bus, err
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

// knownDrivers maps the schemes of this project to the packages of their drivers.
var knownDrivers = map[string]string{
	"mem":   "inmemory",
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
	switch pkg := knownDrivers[scheme]; {
	case pkg != "":
		reason += ": add " + pkg + ".Driver{}"
	case len(known) == 0:
		reason += ": none was given"
	default:
		reason += cmp.Or(nearest.Hint("%s:", scheme, known), "; served: "+strings.Join(known, ", "))
	}
	return nil, &FieldError{Field: "url", Reason: reason, Err: errors.ErrUnsupported}
}
