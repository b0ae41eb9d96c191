package main

import (
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// drivers are the backends that this command can be pointed at.
func drivers() []backend.Driver {
	return []backend.Driver{inmemory.Driver{}}
}
