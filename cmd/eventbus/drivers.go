package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// drivers are the backends that this command can be pointed at.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, redisstream.Driver{}, nats.Driver{}}
}

// init keeps go-redis from writing a line of its own for every connection that
// fails. The commands say what went wrong.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
