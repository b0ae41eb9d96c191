package brokerurl

import (
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/bytesize"
)

// Name accepts a name that would be valid for a topic. Unlike those of other parameters, its
// errors show the value.
func Name(to *string) Parameter {
	return Parameter{Set: func(v string) error {
		*to = v
		return backend.CheckName(v)
	}}
}

// Path accepts a file path.
func Path(to *string) Parameter {
	return Parameter{Set: func(v string) error {
		*to = v
		if v == "" {
			return errors.New("is empty")
		}
		return nil
	}}
}

// Bool accepts true or false.
func Bool(to *bool) Parameter {
	return Parameter{Set: func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return errors.New("is neither true nor false")
		}
		return nil
	}}
}

// Count accepts a whole number that is at least least.
func Count[N int | int64](to *N, least N) Parameter {
	return Parameter{Set: func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if *to = N(n); errors.Is(err, strconv.ErrRange) || int64(*to) != n {
			return errors.New("is out of range")
		}
		if err != nil {
			return errors.New("is not a whole number")
		}
		return atLeast(*to, least)
	}}
}

func atLeast[N int | int64 | time.Duration](n, least N) error {
	switch {
	case n >= least:
		return nil
	case least == 0:
		return errors.New("is negative")
	}
	return errors.New("must be positive")
}

// Duration accepts a positive duration.
func Duration(to *time.Duration) Parameter {
	return Parameter{Set: func(v string) (err error) {
		if *to, err = time.ParseDuration(v); err != nil {
			return errors.New("is not a duration with its unit, such as 90s")
		}
		return atLeast(*to, 1)
	}}
}

// Size accepts a positive size, such as 64MiB, or a number of bytes.
func Size(to *int64) Parameter {
	bytes := Count(to, 1)
	return Parameter{Set: func(v string) (err error) {
		if _, bad := strconv.ParseInt(v, 10, 64); !errors.Is(bad, strconv.ErrSyntax) {
			return bytes.Set(v)
		}
		if *to, err = bytesize.Parse(v); err != nil {
			return err
		}
		return atLeast(*to, 1)
	}}
}

// Addrs appends a host:port to the list. The parameter may be repeated.
func Addrs(to *[]string) Parameter {
	return Parameter{Many: true, Set: func(v string) error {
		if host, port, err := net.SplitHostPort(v); err != nil || host == "" || port == "" {
			return errors.New("is not host:port")
		}
		*to = append(*to, v)
		return nil
	}}
}
