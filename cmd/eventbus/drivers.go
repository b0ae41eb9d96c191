package main

import (
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/redisstream"
)

// drivers are the backends that this command can be pointed at.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}, redisstream.Driver{}}
}
