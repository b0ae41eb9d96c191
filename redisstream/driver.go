package redisstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Driver opens backends by URL:
//
//	redis://user:password@host:6379/0
//	rediss://user:password@host:6379/0                 with TLS
//	unix:///run/redis.sock?db=0
//	redis+sentinel://user:password@host:26379/master   host is a Sentinel's
//	redis+cluster://user:password@host:6379            host is any node's
//
// Parameters of all are those of [Options]: namespace, once_window (such as
// "90s"), max_messages, allow_eviction. Further addresses of Sentinels and nodes
// are given as addr=host:port, as often as there are; db is for unix and
// redis+sentinel. Tls=true brings TLS to Sentinel and Cluster. With TLS ca_file
// replaces the system's authorities; cert_file and key_file are the client's own.
// Whatever else a client can be told, [New] takes one.
type Driver struct{}

var _ backend.Driver = Driver{}

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string {
	return []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"}
}

// Open implements [backend.Driver]. It asks the server whether it can be used.
func (Driver) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	b, err := Open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Open opens the Redis that a URL names, as [Driver] describes it, and asks it
// whether it can be used.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	a, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("redisstream: open: %w", err)
	}
	client := a.client()
	b, err := New(client, a.options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	b.owned = true
	if err := b.checkServer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("redisstream: open: %w", err), b.Close()) //nolint:contextcheck // Close has none
	}
	return b, nil
}

// An address is what a URL says.
type address struct {
	scheme         string
	options        Options
	addrs          []string
	user, password string
	db             int
	master         string
	tls            bool
	ca, cert, key  string
	config         *tls.Config
}

var parameters = map[string]func(*address, string) error{
	"namespace": func(a *address, v string) error {
		a.options.Namespace = v
		return backend.CheckName(v)
	},
	"once_window": func(a *address, v string) (err error) {
		a.options.OnceWindow, err = time.ParseDuration(v)
		return positive(a.options.OnceWindow, err)
	},
	"max_messages": func(a *address, v string) (err error) {
		a.options.MaxMessages, err = strconv.Atoi(v)
		return positive(a.options.MaxMessages, err)
	},
	"allow_eviction": func(a *address, v string) (err error) {
		a.options.AllowEviction, err = strconv.ParseBool(v)
		return err
	},
	"db": func(a *address, v string) (err error) {
		if a.scheme != "unix" && a.scheme != "redis+sentinel" {
			return errors.New("is for unix and redis+sentinel; elsewhere it is the path, and Cluster has none")
		}
		if a.db, err = strconv.Atoi(v); err == nil && a.db < 0 {
			err = errors.New("is negative")
		}
		return err
	},
	"tls": func(a *address, v string) (err error) {
		if a.scheme != "redis+sentinel" && a.scheme != "redis+cluster" {
			return errors.New("is for redis+sentinel and redis+cluster; use rediss: instead")
		}
		a.tls, err = strconv.ParseBool(v)
		return err
	},
	"ca_file":   func(a *address, v string) error { a.ca = v; return nil },
	"cert_file": func(a *address, v string) error { a.cert = v; return nil },
	"key_file":  func(a *address, v string) error { a.key = v; return nil },
	"addr":      nil, // may come more than once, see parse
}

func positive[N int | time.Duration](n N, err error) error {
	if err == nil && n <= 0 {
		err = errors.New("must be positive")
	}
	return err
}

// parse reads a URL. No error shows more of it than a parameter that is wrong.
func parse(u *url.URL) (*address, error) {
	a := &address{scheme: u.Scheme, user: u.User.Username(), tls: u.Scheme == "rediss"}
	a.password, _ = u.User.Password()
	if known := (Driver{}).Schemes(); !slices.Contains(known, u.Scheme) {
		return nil, fmt.Errorf("the URL's scheme is none of %s", strings.Join(known, ", "))
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("the URL has no // behind its scheme, or something behind #")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the URL's parameters are malformed")
	}
	if err := a.place(u); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		set, known := parameters[name]
		switch {
		case !known:
			return nil, nearest.Parameter(name, slices.Sorted(maps.Keys(parameters)))
		case name == "addr":
			err = a.more(values)
		case len(values) > 1:
			err = fmt.Errorf("is given %d times", len(values))
		default:
			err = set(a, values[0])
		}
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	return a, a.secure()
}

// place reads what is before the parameters.
func (a *address) place(u *url.URL) error {
	path := strings.TrimPrefix(u.Path, "/")
	if a.scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return errors.New("a URL with unix: is unix:///path/of/the/socket")
		}
		a.addrs = []string{u.Path}
		return nil
	}
	if u.Hostname() == "" {
		return errors.New("the URL names no host")
	}
	port := u.Port()
	if port == "" {
		if port = "6379"; a.scheme == "redis+sentinel" {
			port = "26379"
		}
	}
	a.addrs = []string{net.JoinHostPort(u.Hostname(), port)}
	switch a.scheme {
	case "redis+sentinel":
		if path == "" || strings.Contains(path, "/") {
			return errors.New("the path of a redis+sentinel URL is the master's name")
		}
		a.master = path
	case "redis+cluster":
		if path != "" {
			return errors.New("a redis+cluster URL has no path: Cluster has one database")
		}
	default:
		if path == "" {
			return nil
		}
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return errors.New("the path of a Redis URL is the number of a database")
		}
		a.db = db
	}
	return nil
}

// more adds addresses.
func (a *address) more(addrs []string) error {
	if a.scheme != "redis+sentinel" && a.scheme != "redis+cluster" {
		return errors.New("is for redis+sentinel and redis+cluster: a single server has one address")
	}
	for _, addr := range addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return errors.New("is not host:port")
		}
	}
	a.addrs = append(a.addrs, addrs...)
	return nil
}

// secure makes the TLS settings.
func (a *address) secure() error {
	if !a.tls {
		if a.ca != "" || a.cert != "" || a.key != "" {
			return errors.New("the URL names TLS files but has no TLS: use rediss:, or tls=true")
		}
		return nil
	}
	a.config = &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := os.ReadFile(a.ca)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", "ca_file", err)
		}
		a.config.RootCAs = x509.NewCertPool()
		if !a.config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter %q: %s has no certificate", "ca_file", a.ca)
		}
	}
	if (a.cert == "") != (a.key == "") {
		return errors.New(`the parameters "cert_file" and "key_file" come together`)
	}
	if a.cert != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", "cert_file", err)
		}
		a.config.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// client returns a client that has connected to nothing.
func (a *address) client() redis.UniversalClient {
	switch a.scheme {
	case "redis+cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: a.addrs, Username: a.user, Password: a.password, TLSConfig: a.config})
	case "redis+sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.master, SentinelAddrs: a.addrs, Username: a.user, Password: a.password, DB: a.db, TLSConfig: a.config,
		})
	}
	network := "tcp"
	if a.scheme == "unix" {
		network = "unix"
	}
	return redis.NewClient(&redis.Options{
		Network: network, Addr: a.addrs[0], Username: a.user, Password: a.password, DB: a.db, TLSConfig: a.config,
	})
}
