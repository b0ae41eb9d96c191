package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	natsgo "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A family is a driver and one of its backends without a connection. Such a backend still
// declares its Limits and its optional interfaces.
type family struct {
	driver  backend.Driver
	backend backend.Backend
}

// nowhere is an address where no server listens.
const nowhere = "127.0.0.1:1"

// families maps the names of backends in the suite's report to their drivers.
func families() (map[string]family, error) {
	client := redis.NewClient(&redis.Options{Addr: nowhere})
	streams, err := redisstream.New(client, redisstream.Options{})
	if err != nil {
		return nil, err
	}
	conn, err := natsgo.Connect("nats://"+nowhere, natsgo.RetryOnFailedConnect(true))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	jetStream, err := nats.New(conn, nats.Options{})
	if err != nil {
		return nil, err
	}
	file, err := ofFile()
	if err != nil {
		return nil, err
	}
	memory := family{inmemory.Driver{}, inmemory.New(inmemory.Options{})}
	ofRedis, ofNATS := family{redisstream.Driver{}, streams}, family{nats.Driver{}, jetStream}
	return map[string]family{
		"inmemory": memory, "bolt": {bolt.Driver{}, file}, "redis": ofRedis, "redis-cluster": ofRedis, "nats": ofNATS, "nats-cluster": ofNATS,
	}, nil
}

// ofFile returns a closed backend on a file that is gone.
func ofFile() (backend.Backend, error) {
	folder, err := os.MkdirTemp("", "promises")
	if err != nil {
		return nil, err
	}
	b, err := bolt.Open(context.Background(), filepath.Join(folder, "events.db"), bolt.Options{}) //nolint:forbidigo // a generator
	if err == nil {
		err = b.Close()
	}
	return b, errors.Join(err, os.RemoveAll(folder))
}

// A declaration is a row of the table with facts that drivers declare.
type declaration struct {
	what string
	of   func(family) string
}

var declarations = []declaration{
	{"an event that one member gives back and another gets has used no attempt", func(f family) string {
		return yes(backend.LimitsOf(f.backend).Refund)
	}},
	{"with Options.Instance, a restarted process gets the events that it held at once", func(f family) string {
		return yes(backend.LimitsOf(f.backend).Instances)
	}},
	{"with Options.Dedup, an ID is remembered by default for", func(f family) string {
		return short(backend.LimitsOf(f.backend).OnceWindow)
	}},
	{"topics, groups and events can be inspected from outside", func(f family) string {
		_, lists := backend.As[backend.Admin](f.backend)
		_, counts := backend.As[backend.Statser](f.backend)
		_, reads := backend.As[backend.Reader](f.backend)
		return yes(lists && counts && reads)
	}},
	{"each topic can have its own settings", func(f family) string {
		_, ok := f.driver.(backend.TopicConfigurer)
		return yes(ok)
	}},
}

func yes(offered bool) string {
	if offered {
		return "yes"
	}
	return "no"
}
