// Package shop contains the events of one day in a small shop, for the demo.
package shop

import (
	_ "embed"
	"io"
	"strings"
)

//go:generate go run ./generate events.ndjson

//go:embed events.ndjson
var events string

// Events returns 2,000 events as lines of JSON: some 300 customers' orders that are placed, paid, packed, shipped and
// delivered. A few come from an old till, and their data cannot be decoded.
func Events() io.Reader { return strings.NewReader(events) }
