package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// drivers are the drivers that this program supports.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{}}
}

// init silences go-redis, which would log each connection that fails. The commands report
// the errors themselves.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
