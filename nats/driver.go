package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/brokerurl"
)

// A Driver opens backends by URL:
//
//	nats://user:password@host:4222
//	nats://token@host:4222
//	tls://host:4222                      with TLS
//
// The parameters namespace, once_window (such as "90s"), max_bytes (such as "64MiB", or a
// number of bytes), max_messages, replicas, storage (file or memory), domain, api_prefix and
// stream set the fields of [Options].
//
// addr=host:port names another server and may be repeated; the client discovers the other
// servers of a cluster by itself. credentials_file is a file made by `nsc`, and nkey_file
// contains a seed. With TLS, ca_file replaces the system's authorities, and cert_file and
// key_file identify the client. inbox_prefix replaces _INBOX, for servers that give each user
// a prefix of their own. For any other setting of a connection, use [New].
type Driver struct {
	topics map[string]TopicOptions
	files  []string // topics with storage=file, which looks like the default in TopicOptions
}

var (
	_ backend.Driver          = Driver{}
	_ backend.TopicConfigurer = Driver{}
	_ backend.URLChecker      = Driver{}
)

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string { return []string{"nats", "tls"} }

// ConfigureTopic implements [backend.TopicConfigurer]. The settings are the fields of
// [TopicOptions], named and written as in the URL: once_window, replicas and storage. They
// apply to new streams; an existing stream keeps its own. To bound a topic, use
// [Backend.Declare].
func (d Driver) ConfigureTopic(topic string, settings map[string]string) (backend.Driver, error) {
	var o TopicOptions
	err := backend.CheckName(topic)
	if err != nil {
		err = fmt.Errorf("the topic %w", err)
	} else if _, twice := d.topics[topic]; twice {
		err = errors.New("the topic is configured already")
	} else {
		err = brokerurl.Table{
			"once_window": brokerurl.Duration(&o.OnceWindow),
			"replicas":    brokerurl.Count(&o.Replicas, 1),
			"storage":     storage(&o.Storage),
		}.Settings(settings)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: configure %s: %w", topic, err)
	}
	next := Driver{topics: map[string]TopicOptions{topic: o}, files: slices.Clone(d.files)}
	maps.Copy(next.topics, d.topics)
	if _, said := settings["storage"]; said && o.Storage == jetstream.FileStorage {
		next.files = append(next.files, topic)
	}
	return next, nil
}

// Open implements [backend.Driver].
func (d Driver) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	b, err := d.open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// CheckURL implements [backend.URLChecker].
func (d Driver) CheckURL(u *url.URL) error {
	if _, err := d.parse(u); err != nil {
		return fmt.Errorf("nats: %w", err)
	}
	return nil
}

// Open connects to the NATS system that u names, in one of the forms that [Driver] lists, and
// checks that JetStream answers.
func Open(ctx context.Context, u *url.URL) (*Backend, error) { return Driver{}.open(ctx, u) }

func (d Driver) open(ctx context.Context, u *url.URL) (*Backend, error) {
	a, err := d.parse(u)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	conn, end, err := a.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("nats: open: %w", err)
	}
	b, err := newBackend(conn, end, a.options)
	if err != nil {
		end()
		conn.Close()
		return nil, err
	}
	if err := b.Ping(ctx); err != nil {
		return nil, errors.Join(err, b.Close()) //nolint:contextcheck // Close has no context
	}
	return b, nil
}

// A urlConfig is what a URL says.
type urlConfig struct {
	options     Options
	addrs       []string
	user        *url.Userinfo
	creds, seed string
	login       natsgo.Option // from user, creds or seed
	inbox       string
	tls         bool
	files       brokerurl.TLSFiles
	config      *tls.Config
}

// parameters lists the parameters that a URL may have.
func (a *urlConfig) parameters() brokerurl.Table {
	t := a.files.Parameters()
	t["namespace"] = brokerurl.Name(&a.options.Namespace)
	t["once_window"] = brokerurl.Duration(&a.options.OnceWindow)
	t["max_bytes"] = brokerurl.Size(&a.options.MaxBytes)
	t["max_messages"] = brokerurl.Count(&a.options.MaxMessages, 1)
	t["replicas"] = brokerurl.Count(&a.options.Replicas, 1)
	t["storage"] = storage(&a.options.Storage)
	t["domain"] = brokerurl.Name(&a.options.Domain)
	t["api_prefix"] = brokerurl.Parameter{Set: func(v string) error {
		a.options.APIPrefix = v
		if v == "" {
			return errors.New("is empty")
		}
		return nil
	}}
	t["stream"] = brokerurl.Name(&a.options.Stream)
	t["credentials_file"] = brokerurl.Path(&a.creds)
	t["nkey_file"] = brokerurl.Path(&a.seed)
	t["inbox_prefix"] = brokerurl.Name(&a.inbox)
	t["addr"] = brokerurl.Addrs(&a.addrs)
	return t
}

// storage returns a parameter that sets *to. Its value is "file" or "memory".
func storage(to *jetstream.StorageType) brokerurl.Parameter {
	return brokerurl.Parameter{Set: func(v string) error {
		switch v {
		case "file":
			*to = jetstream.FileStorage
		case "memory":
			*to = jetstream.MemoryStorage
		default:
			return errors.New("is neither file nor memory")
		}
		return nil
	}}
}

// parse reads a URL and checks it together with the settings of topics. Its errors quote only
// the wrong parameter, because the URL may contain a password.
func (d Driver) parse(u *url.URL) (*urlConfig, error) {
	if !slices.Contains(d.Schemes(), u.Scheme) {
		return nil, errors.New("the URL's scheme is not nats or tls")
	}
	if err := brokerurl.CheckHost(u, "addr"); err != nil {
		return nil, err
	}
	if strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("the URL has a path, of which NATS knows none")
	}
	a := &urlConfig{
		user: u.User, tls: u.Scheme == "tls", options: Options{Topics: d.topics},
		addrs: []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222"))},
	}
	if err := a.parameters().Parameters(u); err != nil {
		return nil, err
	}
	if a.options.Storage != jetstream.FileStorage && len(d.files) > 0 {
		return nil, fmt.Errorf(`parameter "storage": with memory for all others the topic %s cannot be in files`, d.files[0])
	}
	if _, err := a.options.withDefaults(); err != nil {
		return nil, err
	}
	if err := a.credentials(); err != nil {
		return nil, err
	}
	return a, a.loadTLS()
}

// credentials reads the user from the URL, or the credentials or the seed from a file.
func (a *urlConfig) credentials() (err error) {
	switch {
	case a.user != nil && a.creds+a.seed != "", a.creds != "" && a.seed != "":
		return errors.New(`the URL has more than one of a user, "credentials_file" and "nkey_file"`)
	case a.user != nil:
		// Functions return the user and the password: %s of a connection prints the
		// options that are strings.
		name := a.user.Username()
		a.login = natsgo.TokenHandler(func() string { return name })
		if password, ok := a.user.Password(); ok {
			a.login = natsgo.UserInfoHandler(func() (string, string) { return name, password })
		}
	case a.creds != "":
		var o natsgo.Options
		a.login = natsgo.UserCredentials(a.creds)
		if err = a.login(&o); err == nil {
			_, err = o.SignatureCB(nil) // reads the file
		}
		if err != nil {
			return fmt.Errorf("parameter %q: %w", "credentials_file", err)
		}
	case a.seed != "":
		if a.login, err = natsgo.NkeyOptionFromSeed(a.seed); err != nil {
			return fmt.Errorf("parameter %q: %w", "nkey_file", err)
		}
	}
	return nil
}

// loadTLS reads the TLS files.
func (a *urlConfig) loadTLS() (err error) {
	if a.tls {
		a.config, err = a.files.Config()
		return err
	}
	if a.files.Given() {
		return errors.New("the URL names TLS files but has no TLS: its scheme must be tls")
	}
	return nil
}

// connect opens a connection that reconnects for ever and buffers nothing while it is down. It
// notices within seconds that a server no longer answers, and gives up a write or a dial after
// a few seconds. end closes the connection at any moment, even in the middle of a write.
func (a *urlConfig) connect(ctx context.Context) (conn *natsgo.Conn, end func(), err error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, end)
	d := &dialer{life: life}
	options := []natsgo.Option{
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100 * time.Millisecond), natsgo.ReconnectBufSize(-1),
		natsgo.IgnoreAuthErrorAbort(),                                           // a refused user may be allowed again later
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}), // the default handler writes to stderr
		natsgo.PingInterval(2 * time.Second), natsgo.MaxPingsOutstanding(2),
		natsgo.FlusherTimeout(2 * time.Second), natsgo.ReconnectOnFlusherError(),
		natsgo.SetCustomDialer(d), natsgo.SkipHostLookup(), natsgo.Timeout(answerTimeout),
	}
	if a.login != nil {
		options = append(options, a.login)
	}
	if a.inbox != "" {
		options = append(options, natsgo.CustomInboxPrefix(a.inbox))
	}
	if a.config != nil {
		options = append(options, natsgo.Secure(a.config))
	}
	conn, err = natsgo.Connect(strings.Join(a.addrs, ","), options...)
	if !opened() && err == nil {
		conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, nil, a.explain(err, classOf(ctx, err, false), d.connected.Load())
	}
	return conn, end, nil
}

// explain adds to classed which addresses cannot be reached, or a hint if the scheme of the
// URL does not fit the server. classed is err with its error class; connected says whether a
// server has accepted a connection.
func (a *urlConfig) explain(err, classed error, connected bool) error {
	var late net.Error
	switch {
	case errors.Is(err, natsgo.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server has no TLS, so the URL's scheme must be nats, not tls", classed)
	case !a.tls && errors.Is(err, natsgo.ErrTLS):
		return fmt.Errorf("%w: the server requires TLS, so the URL's scheme must be tls, not nats", classed)
	case errors.Is(err, natsgo.ErrNoServers):
		return fmt.Errorf("%w: %s", classed, strings.Join(a.addrs, ", "))
	case connected && !errors.Is(err, natsgo.ErrTLS) && errors.As(classed, &late) && late.Timeout():
		return fmt.Errorf("%w: the server has said nothing: is this a port of NATS? A port that waits for TLS from the first byte on is none", classed)
	}
	return classed
}

// A dialer dials servers for one client, which has one connection at a time. It closes the
// previous connection before it dials again, and the last one when the context life ends.
type dialer struct {
	life      context.Context
	last      net.Conn    // nil before the first; the client's lock protects it
	connected atomic.Bool // at least one dial has succeeded
}

// Dial implements [natsgo.CustomDialer].
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	if d.last != nil {
		_ = d.last.Close() // nats.go leaves a connection open if its first exchange fails
		d.last = nil
	}
	conn, err := (&net.Dialer{Timeout: answerTimeout}).DialContext(d.life, network, addr)
	if err != nil {
		return nil, err
	}
	d.connected.Store(true)
	d.last = &trackedConn{conn, context.AfterFunc(d.life, func() { _ = conn.Close() })}
	return d.last, nil
}

// A trackedConn is a connection of a dialer. Its Close also removes the callback that closes
// the connection at the end of dialer.life.
type trackedConn struct {
	net.Conn
	forget func() bool
}

func (c *trackedConn) Close() error {
	c.forget()
	return c.Conn.Close()
}
