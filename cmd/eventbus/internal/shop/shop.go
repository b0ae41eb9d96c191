// Package shop has the events of one day in a small shop, for the demo.
package shop

import (
	_ "embed"
	"io"
	"strings"
)

//go:generate go run ./generate events.ndjson

//go:embed events.ndjson
var events string

// Events returns 2,000 events as NDJSON, one per line: orders of some 300 customers
// placed, paid, packed, shipped and delivered. A few come from an old till; their data
// cannot be decoded.
func Events() io.Reader { return strings.NewReader(events) }
