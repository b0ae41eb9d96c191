package redisstream

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
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/brokerurl"
)

// A Driver opens backends by URL:
//
//	redis://user:password@host:6379/0
//	rediss://user:password@host:6379/0                 with TLS
//	unix:///run/redis.sock?db=0
//	redis+sentinel://user:password@host:26379/master   the host of a Sentinel
//	redis+cluster://user:password@host:6379            the host of any node
//
// docs/redis.md lists the parameters. For any other setting, pass a client to [New].
type Driver struct{ topics map[string]TopicOptions }

var (
	_ backend.Driver          = Driver{}
	_ backend.TopicConfigurer = Driver{}
	_ backend.URLChecker      = Driver{}
)

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string {
	return []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"}
}

// Open implements [backend.Driver]. It checks the servers, as the function [Open] does.
func (d Driver) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	b, err := d.open(ctx, u)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// CheckURL implements [backend.URLChecker].
func (Driver) CheckURL(u *url.URL) error {
	if _, err := parse(u); err != nil {
		return fmt.Errorf("redisstream: %w", err)
	}
	return nil
}

// Open opens a backend on the Redis that u names, in one of the forms that [Driver] lists. It
// refuses a server older than 6.2, and a server that may evict topics unless
// [Options].AllowEviction is set. In a Cluster, a master that does not answer is accepted as
// long as another one does.
func Open(ctx context.Context, u *url.URL) (*Backend, error) { return Driver{}.open(ctx, u) }

func (d Driver) open(ctx context.Context, u *url.URL) (*Backend, error) {
	a, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("redisstream: open: %w", err)
	}
	a.options.Topics = d.topics
	if a.client.IsClusterMode {
		// The client asks for the topology on its own connections, whose failed dials
		// would be logged.
		a.client.Dialer = quietly(redis.NewDialer(&redis.Options{DialTimeout: replyTimeout, TLSConfig: a.client.TLSConfig}))
	}
	client := redis.NewUniversalClient(&a.client)
	b, err := New(client, a.options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	b.owned, b.opened = true, a.client.Addrs[0]
	if err := b.checkServers(ctx); err != nil {
		err = fmt.Errorf("redisstream: open: %w%s", err, a.hint(ctx))
		return nil, errors.Join(err, b.Close()) //nolint:contextcheck // Close has none
	}
	return b, nil
}

// hint connects once more to find out whether the URL is wrong about TLS, because the failed
// call cannot tell. A server with TLS closes a connection without TLS; a server without TLS
// waits for more bytes.
func (a *address) hint(ctx context.Context) string {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if a.scheme == "unix" || a.scheme == "redis+sentinel" {
		return ""
	}
	if !a.tls {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent on it
		if c, err := d.DialContext(ctx, "tcp", a.client.Addrs[0]); err == nil {
			_ = c.Close()
			return "; the server speaks TLS: use rediss:, or tls=true"
		}
		return ""
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.client.Addrs[0])
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	answer := make([]byte, 1)
	_, _ = c.Write([]byte("PING\r\n"))
	if _, err := c.Read(answer); err == nil && strings.ContainsAny(string(answer), "+-") {
		return "; the server speaks without TLS: use redis:, or tls=false"
	}
	return ""
}

// An address is a parsed URL. In the client's options, MasterName alone means Sentinel and
// IsClusterMode alone means Cluster.
type address struct {
	scheme  string
	options Options
	client  redis.UniversalOptions
	tls     bool
	files   brokerurl.TLSFiles
}

// parameters returns the parameters that a URL with a's scheme may have.
func (a *address) parameters() brokerurl.Table {
	t := a.files.Parameters()
	t["namespace"] = brokerurl.Name(&a.options.Namespace)
	t["once_window"] = brokerurl.Duration(&a.options.OnceWindow)
	t["max_messages"] = brokerurl.Count(&a.options.MaxMessages, 1)
	t["allow_eviction"] = brokerurl.Bool(&a.options.AllowEviction)
	t["db"] = a.only(brokerurl.Count(&a.client.DB, 0), "unix", "redis+sentinel",
		"is for unix and redis+sentinel; elsewhere it is the path, and Cluster has none")
	t["tls"] = a.only(brokerurl.Bool(&a.tls), "redis+cluster", "redis+sentinel",
		"is for redis+sentinel and redis+cluster; use rediss: instead")
	t["addr"] = a.only(brokerurl.Addrs(&a.client.Addrs), "redis+cluster", "redis+sentinel",
		"is for redis+sentinel and redis+cluster: a single server has one address")
	return t
}

// only returns p if a has one of the two schemes. Otherwise it returns a parameter that fails
// with the reason.
func (a *address) only(p brokerurl.Parameter, one, other, reason string) brokerurl.Parameter {
	if a.scheme != one && a.scheme != other {
		p.Set = func(string) error { return errors.New(reason) }
	}
	return p
}

// parse reads a URL. Because the URL may hold a password, errors quote nothing of it except the
// wrong parameter.
func parse(u *url.URL) (*address, error) {
	a := &address{scheme: u.Scheme, tls: u.Scheme == "rediss"}
	a.client.Username = u.User.Username()
	a.client.Password, _ = u.User.Password()
	known := Driver{}.Schemes()
	switch {
	case !slices.Contains(known, u.Scheme):
		return nil, fmt.Errorf("the URL's scheme is none of %s", strings.Join(known, ", "))
	case a.client.Username != "" && a.client.Password == "":
		return nil, errors.New("the URL has a user without a password")
	}
	if err := a.parseHost(u); err != nil {
		return nil, err
	}
	if err := a.parameters().Parameters(u); err != nil {
		return nil, err
	}
	if _, err := a.options.withDefaults(); err != nil {
		return nil, err
	}
	if !a.tls && a.files.Given() {
		return nil, errors.New("the URL names TLS files but has no TLS: use rediss:, or tls=true")
	}
	var err error
	if a.tls {
		a.client.TLSConfig, err = a.files.Config()
	}
	return a, err
}

// parseHost reads the host, the port and the path of the URL.
func (a *address) parseHost(u *url.URL) (err error) {
	path, port, further := strings.TrimPrefix(u.Path, "/"), "6379", ""
	switch a.scheme {
	case "unix":
		if u.Host != "" || u.Path == "" || u.Fragment != "" {
			return errors.New("a URL with unix: is unix:///path/of/the/socket")
		}
		a.client.Addrs = []string{u.Path} // go-redis recognizes a socket by its slash
		return nil
	case "redis+sentinel", "redis+cluster":
		further = "addr"
	}
	if err := brokerurl.CheckHost(u, further); err != nil {
		return err
	}
	switch a.scheme {
	case "redis+sentinel":
		if path == "" || strings.Contains(path, "/") {
			err = errors.New("the path of a redis+sentinel URL is the master's name")
		}
		a.client.MasterName, port = path, "26379"
	case "redis+cluster":
		if path != "" {
			err = errors.New("a redis+cluster URL has no path: Cluster has one database")
		}
		a.client.IsClusterMode = true
	default:
		db, bad := strconv.Atoi(cmp.Or(path, "0"))
		if bad != nil || db < 0 {
			err = errors.New("the path of a Redis URL is the number of a database")
		}
		a.client.DB = db
	}
	a.client.Addrs = []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))}
	return err
}

// ConfigureTopic implements [backend.TopicConfigurer]. The settings are the fields of
// [TopicOptions]: flat (true or false), flat_id, flat_key, flat_type, and flat_publish (true or
// false).
func (d Driver) ConfigureTopic(topic string, settings map[string]string) (backend.Driver, error) {
	var o TopicOptions
	err := brokerurl.Table{
		"flat":         brokerurl.Bool(&o.Flat),
		"flat_id":      {Set: func(name string) error { o.FlatID = name; return nil }},
		"flat_key":     {Set: func(name string) error { o.FlatKey = name; return nil }},
		"flat_publish": brokerurl.Bool(&o.FlatPublish),
		"flat_type":    {Set: func(name string) error { o.FlatType = name; return nil }},
	}.Settings(settings)
	if err == nil {
		err = checkTopic(topic, o)
	}
	if _, twice := d.topics[topic]; twice && err == nil {
		err = errors.New("the topic is configured already")
	}
	if err != nil {
		return nil, fmt.Errorf("redisstream: configure %s: %w", topic, err)
	}
	next := Driver{topics: map[string]TopicOptions{topic: o}}
	maps.Copy(next.topics, d.topics)
	return next, nil
}
