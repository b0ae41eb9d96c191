package nats

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

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A Driver opens backends by URL:
//
//	nats://user:password@host:4222
//	nats://token@host:4222
//	tls://host:4222                      with TLS
//
// Parameters are those of [Options]: namespace, once_window (such as "90s"),
// max_bytes, replicas, storage (file or memory). Further servers are given as
// addr=host:port, as often as there are; the others of a cluster are found out.
// Credentials_file is one of `nsc`, nkey_file has a seed. With TLS ca_file
// replaces the system's authorities; cert_file and key_file are the client's own.
// Inbox_prefix replaces _INBOX, for servers that keep users apart by it. Whatever
// else a connection can be told, [New] takes one.
type Driver struct{}

var _ backend.Driver = Driver{}

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string { return []string{"nats", "tls"} }

// Open implements [backend.Driver].
func (Driver) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	b, err := Open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Open opens the NATS system that a URL names, as [Driver] describes it, and asks
// it for JetStream.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	a, err := parse(u)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	conn, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", classOf(ctx, a.hidden(err), false))
	}
	b, err := New(conn, a.options)
	if err != nil {
		conn.Close()
		return nil, err
	}
	b.owned = true
	if err := b.Ping(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// An address is what a URL says.
type address struct {
	options       Options
	addrs         []string
	user          *url.Userinfo
	tls           bool
	ca, cert, key string
	creds, seed   string
	inbox         string
	secure        *tls.Config
}

var parameters = map[string]func(*address, string) error{
	"namespace": func(a *address, v string) error { a.options.Namespace = v; return backend.CheckName(v) },
	"once_window": func(a *address, v string) (err error) {
		a.options.OnceWindow, err = time.ParseDuration(v)
		return positive(a.options.OnceWindow, err)
	},
	"max_bytes": func(a *address, v string) (err error) {
		a.options.MaxBytes, err = strconv.ParseInt(v, 10, 64)
		return positive(a.options.MaxBytes, err)
	},
	"replicas": func(a *address, v string) (err error) {
		a.options.Replicas, err = strconv.Atoi(v)
		return positive(a.options.Replicas, err)
	},
	"storage": func(a *address, v string) error {
		switch v {
		case "file":
			a.options.Storage = jetstream.FileStorage
		case "memory":
			a.options.Storage = jetstream.MemoryStorage
		default:
			return errors.New("is file or memory")
		}
		return nil
	},
	"credentials_file": func(a *address, v string) error { a.creds = v; return nil },
	"nkey_file":        func(a *address, v string) error { a.seed = v; return nil },
	"inbox_prefix":     func(a *address, v string) error { a.inbox = v; return backend.CheckName(v) },
	"ca_file":          func(a *address, v string) error { a.ca = v; return nil },
	"cert_file":        func(a *address, v string) error { a.cert = v; return nil },
	"key_file":         func(a *address, v string) error { a.key = v; return nil },
	"addr":             nil, // may come more than once, see parse
}

func positive[N int | int64 | time.Duration](n N, err error) error {
	if err == nil && n <= 0 {
		err = errors.New("must be positive")
	}
	return err
}

// parse reads a URL. No error shows more of it than a parameter that is wrong.
func parse(u *url.URL) (*address, error) {
	if !slices.Contains(Driver{}.Schemes(), u.Scheme) {
		return nil, errors.New("the URL's scheme is not nats or tls")
	}
	a := &address{user: u.User, tls: u.Scheme == "tls"}
	if u.Opaque != "" || u.Fragment != "" || u.Hostname() == "" {
		return nil, errors.New("the URL names no host, or has something behind #")
	}
	if strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the URL has a path, of which NATS knows none")
	}
	port := u.Port()
	if port == "" {
		port = "4222"
	}
	a.addrs = []string{net.JoinHostPort(u.Hostname(), port)}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the URL's parameters are malformed")
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
	return a, a.secrets()
}

func (a *address) more(addrs []string) error {
	for _, addr := range addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return errors.New("is not host:port")
		}
	}
	a.addrs = append(a.addrs, addrs...)
	return nil
}

// secrets makes the TLS settings, and looks whether files are there.
func (a *address) secrets() error {
	for name, path := range map[string]string{"credentials_file": a.creds, "nkey_file": a.seed} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	if !a.tls {
		if a.ca != "" || a.cert != "" || a.key != "" {
			return errors.New("the URL names TLS files but has no TLS: its scheme must be tls")
		}
		return nil
	}
	a.secure = &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := os.ReadFile(a.ca)
		if err != nil {
			return fmt.Errorf("parameter %q: %w", "ca_file", err)
		}
		a.secure.RootCAs = x509.NewCertPool()
		if !a.secure.RootCAs.AppendCertsFromPEM(pem) {
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
		a.secure.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// connect makes a connection that comes back for ever, keeps nothing to send
// later, and notices within seconds that nobody is there.
func (a *address) connect(ctx context.Context) (*natsgo.Conn, error) {
	options := []natsgo.Option{
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100 * time.Millisecond), natsgo.ReconnectBufSize(-1),
		natsgo.PingInterval(2 * time.Second), natsgo.MaxPingsOutstanding(2),
		natsgo.Timeout(dialTimeout(ctx)),
	}
	if a.user != nil {
		if password, ok := a.user.Password(); ok {
			options = append(options, natsgo.UserInfo(a.user.Username(), password))
		} else {
			options = append(options, natsgo.Token(a.user.Username()))
		}
	}
	if a.creds != "" {
		options = append(options, natsgo.UserCredentials(a.creds))
	}
	if a.seed != "" {
		nkey, err := natsgo.NkeyOptionFromSeed(a.seed)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "nkey_file", err)
		}
		options = append(options, nkey)
	}
	if a.inbox != "" {
		options = append(options, natsgo.CustomInboxPrefix(a.inbox))
	}
	if a.secure != nil {
		options = append(options, natsgo.Secure(a.secure))
	}
	return natsgo.Connect(strings.Join(a.addrs, ","), options...)
}

func dialTimeout(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline), answer)
	}
	return answer
}

// hidden makes sure of an error that shows no secret.
func (a *address) hidden(err error) error {
	if a.user == nil {
		return err
	}
	secrets := []string{a.user.Username()}
	if password, ok := a.user.Password(); ok {
		secrets = append(secrets, password)
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(err.Error(), secret) {
			return errors.New("the connection failed")
		}
	}
	return err
}
